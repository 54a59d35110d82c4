"""The methods and their hyperparameters, as types. No torch here: planning must start at once."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator


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


class Hyperparameters(Strict):
    """What every method has."""

    lr: Positive


class DerppHyperparameters(Hyperparameters):
    """DER++: weights of the replayed logits (alpha) and of the replayed labels (beta)."""

    alpha: NonNegative
    beta: NonNegative


class TwfHyperparameters(DerppHyperparameters):
    """TwF: DER++'s, and the weights of feature propagation.

    `lambda_diversity` is the paper's lambda, `lambda_fp` its lambda_FP and `lambda_fp_replay` its
    lambda_FP^repl.
    """

    lambda_diversity: NonNegative
    lambda_fp: NonNegative
    lambda_fp_replay: NonNegative


@dataclass(frozen=True)
class MethodInfo:
    """What planning and tables need to know of a method; `twf.methods` has its code."""

    title: str
    hyperparameters: type[Hyperparameters]
    rehearsal: bool = False


# In the order of the paper's tables. `twf.methods` has a module of each name (with _ for -).
METHODS: dict[str, MethodInfo] = {
    "joint": MethodInfo("Joint (UB)", Hyperparameters),
    "finetune": MethodInfo("Finetune", Hyperparameters),
    "er": MethodInfo("ER", Hyperparameters, rehearsal=True),
    "derpp": MethodInfo("DER++", DerppHyperparameters, rehearsal=True),
    "twf": MethodInfo("TwF", TwfHyperparameters, rehearsal=True),
}
