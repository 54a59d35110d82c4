"""What types in `params.yaml` are made of, and what is said of a method. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from twf.errors import UserError, explain


class Strict(BaseModel):
    """A part of `params.yaml`: immutable, no conversions, no unknown keys, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            unknown = [_with_near_miss(key, cls) for key in values if key not in cls.model_fields]
            if unknown:
                allowed = ", ".join(cls.model_fields)
                raise ValueError(f"unknown key {', '.join(unknown)}; allowed: {allowed}")
        return values


def _with_near_miss(key: Any, model: type[BaseModel]) -> str:
    """An unknown key, and the known one that is most like it."""
    near = get_close_matches(str(key), model.model_fields, n=1)
    return f"{key!r} (did you mean {near[0]!r}?)" if near else repr(key)


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0)]
Fidelity = Literal["paper", "published"]


class Hyperparameters(Strict):
    """What every method has."""

    lr: Positive

    def changed(self, values: Mapping[str, int | float]) -> Self:
        """The same with some values replaced. Raises `UserError` where one cannot be."""
        try:
            return type(self)(**{**self.model_dump(), **values})
        except ValidationError as error:
            raise UserError("; ".join(explain(error))) from None

    @property
    def text(self) -> str:
        """In a line: `lr=0.03 alpha=0.2`."""
        return " ".join(f"{key}={value:g}" for key, value in self)


@dataclass(frozen=True)
class Deviation:
    """Where the published code differs from the paper; docs/fidelity.md has the same as a table."""

    subject: str
    paper: str  # what the switch's value `paper` does
    published: str  # and its value `published`


@dataclass(frozen=True)
class MethodInfo:
    """What planning and tables need to know of a method; `learning/methods/` has its loss."""

    title: str
    order: int  # its place in tables, and what its line in a plot looks like
    hyperparameters: type[Hyperparameters] = Hyperparameters
    rehearsal: bool = False  # it has a buffer
    without_buffer: bool = False  # it can also learn without one
    as_twf: bool = False  # its stream loss and its replay can be TwF's
    all_gradients: bool = False  # it needs each parameter's: no layer can be frozen
    at_once: bool = False  # all tasks are one, as an upper bound
    source_data: bool = False  # it needs the source's images while it learns
    not_printed: str | None = None  # a hyperparameter whose value the paper does not print
    switches: Mapping[str, Deviation] = field(default_factory=dict)  # those its loss asks for
