"""What types in `params.yaml` are made of. No torch here."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from twf.errors import UserError, explain, near_miss


class Strict(BaseModel):
    """A part of `params.yaml`: immutable, no conversions, no unknown keys, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, values: Any) -> Any:
        if isinstance(values, dict):
            fields = cls.model_fields
            wrong = [key for key in values if key not in fields]
            unknown = [f"{key!r}{near_miss(str(key), fields)}" for key in wrong]
            if unknown:
                raise ValueError(f"unknown key {', '.join(unknown)}; allowed: {', '.join(fields)}")
        return values


Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0)]
Fidelity = Literal["paper", "published"]


class Hyperparameters(Strict):
    """What every method has."""

    lr: Positive

    def changed(self, values: Mapping[str, int | float], where: str = "hyperparameters") -> Self:
        """The same with values that stand at `where`. Raises `UserError` where they cannot be."""
        try:
            return type(self)(**{**self.model_dump(), **values})
        except ValidationError as error:
            raise UserError(f"{where}: {'; '.join(explain(error))}") from None

    @property
    def text(self) -> str:
        """In a line: `lr=0.03 alpha=0.2`."""
        return " ".join(f"{key}={value:g}" for key, value in self)
