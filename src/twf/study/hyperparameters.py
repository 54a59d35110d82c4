"""The methods and their hyperparameters, as types. No torch here: planning must start at once."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal

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
Count = Annotated[int, Field(gt=0)]
Fidelity = Literal["paper", "published"]


class Hyperparameters(Strict):
    """What every method has."""

    lr: Positive


class OewcHyperparameters(Hyperparameters):
    """oEWC: the penalty's weight (the paper's lambda) and the decay of past Fisher information."""

    lambda_ewc: NonNegative
    gamma: NonNegative


class LwfHyperparameters(Hyperparameters):
    """LwF: the distillation's weight and temperature (tau), and the weight of `sum theta^2`."""

    alpha: NonNegative
    tau: Positive
    weight_decay: NonNegative


class Co2lHyperparameters(Hyperparameters):
    """CO2L: a batch of its own, temperatures, and the linear classifier's rate.

    `lambda_ird` is the weight of the relation distillation; `chunks` cuts a batch into parts that
    are contrasted apart.
    """

    batch_size: Count
    tau: Positive
    kappa: Positive
    kappa_star: Positive
    lambda_ird: NonNegative
    lr_linear: Positive
    lr_linear_decay: Positive
    chunks: Count = 1


class IcarlHyperparameters(Hyperparameters):
    """iCaRL: the weight of `sum theta^2`."""

    weight_decay: NonNegative


class DerppHyperparameters(Hyperparameters):
    """DER++: weights of the replayed logits (alpha) and of the replayed labels (beta)."""

    alpha: NonNegative
    beta: NonNegative


class DerppEwcHyperparameters(DerppHyperparameters):
    """DER++ anchored to its initialization: the penalty's weight, and images for its Fisher."""

    lambda_ewc: NonNegative
    fisher_images: Count


class DerppPretrainingHyperparameters(DerppHyperparameters):
    """DER++ that keeps a `share` of its buffer for images of the source."""

    share: Annotated[float, Field(gt=0, lt=1)]


class TwfHyperparameters(DerppHyperparameters):
    """TwF: DER++'s, and the weights of feature propagation.

    `lambda_diversity` is the paper's lambda, `lambda_fp` its lambda_FP and `lambda_fp_replay` its
    lambda_FP^repl.
    """

    lambda_diversity: NonNegative
    lambda_fp: NonNegative
    lambda_fp_replay: NonNegative


@dataclass(frozen=True)
class Deviation:
    """Where the published code parts from the paper; docs/fidelity.md has the same as a table."""

    subject: str
    paper: str  # what the switch's value `paper` does
    published: str  # and its value `published`


# F8 chooses what tables show, F9 is a value of params.yaml; methods ask for the others.
SWITCHES: dict[str, Deviation] = {
    "F1": Deviation(
        "sibling's batch normalisation",
        "evaluation mode throughout",
        "evaluation mode in the first task, batch statistics from the second on",
    ),
    "F2": Deviation(
        "stored masks at a task's end",
        "as drawn when the example entered the buffer",
        "recomputed (evaluation mode, likeliest gates, no augmentation), then given to the wrong "
        "rows: row i gets the (i mod n)-th of its chunk's n; the last partial chunk is skipped",
    ),
    "F3": Deviation(
        "diversity vectors",
        "`g = GAP(M) / |GAP(M)|`",
        "`GAP(M)`, and 1/2 is subtracted all the same",
    ),
    "F4": Deviation(
        "gate",
        "logits `(a, 0)`, a = channel + spatial attention",
        "a task's own linear map of a to two logits per unit",
    ),
    "F5": Deviation(
        "mask replay",
        "every replayed example, on the difference of the two logits",
        "examples of past tasks, on the first logit",
    ),
    "F6": Deviation(
        "stream loss",
        "cross-entropy over all classes of the benchmark",
        "over the current task's classes",
    ),
    "F7": Deviation(
        "distance",
        "squared norm over positions, channels and taps, mean over examples",
        "both maps divided by their spatial norm; mean over positions and taps; positions with "
        "student <= target <= 0 left out",
    ),
    "F8": Deviation(
        "forgetting",
        "best of the tasks before the last, minus final: can be negative",
        "best over all tasks, the last included",
    ),
    "F9": Deviation(
        "lambda_FP on Split CIFAR-10, buffer 500",
        "5e-3",
        "5e-4, in a later release",
    ),
    "F10": Deviation(
        "diversity over replay",
        "stream alone",
        "replayed examples of the current task too",
    ),
    "F11": Deviation(
        "CO2L's schedules",
        "the original's: ten epochs of warm-up from 0.01, a cosine to a thousandth; 100 epochs for "
        "the linear classifier",
        "a constant rate; one pass for the linear classifier",
    ),
    "F12": Deviation(
        "LwF's distillation targets",
        "answers to the images as training normalises them",
        "answers to images without mean and std",
    ),
    "F13": Deviation(
        "iCaRL's exemplars in training",
        "the stored images",
        "multiplied by the normalisation's std, its mean added, rows and columns swapped",
    ),
    "F14": Deviation(
        "weights in TwF",
        "`lambda_FP` times distance, `lambda_FP^repl` times mask replay, `lambda` times diversity",
        "the whole is multiplied by `lambda_FP`",
    ),
    "F15": Deviation(
        "oEWC's Fisher information",
        "evaluation mode, every image once without augmentation",
        "training mode, one image at a time, so each has its own batch statistics and the running "
        "ones are overwritten just before evaluation; augmented images, the last incomplete batch "
        "dropped",
    ),
}


@dataclass(frozen=True)
class MethodInfo:
    """What planning and tables need to know of a method; `twf.learning.methods` has its code."""

    title: str
    hyperparameters: type[Hyperparameters]
    rehearsal: bool = False
    switches: tuple[str, ...] = ()  # of `SWITCHES`: those that its code asks for
    source_data: bool = False  # it needs the source's images while it learns


# In the order of the paper's tables.
METHODS: dict[str, MethodInfo] = {
    "joint": MethodInfo("Joint (UB)", Hyperparameters),
    "finetune": MethodInfo("Finetune", Hyperparameters),
    "oewc": MethodInfo("oEWC", OewcHyperparameters, switches=("F15",)),
    "lwf": MethodInfo("LwF", LwfHyperparameters, switches=("F12",)),
    "er": MethodInfo("ER", Hyperparameters, rehearsal=True),
    "co2l": MethodInfo(
        "CO2L",
        Co2lHyperparameters,
        rehearsal=True,
        switches=("F11",),
    ),
    "icarl": MethodInfo(
        "iCaRL",
        IcarlHyperparameters,
        rehearsal=True,
        switches=("F13",),
    ),
    "derpp": MethodInfo("DER++", DerppHyperparameters, rehearsal=True),
    "derpp-ewc": MethodInfo(
        "DER++ with EWC",
        DerppEwcHyperparameters,
        rehearsal=True,
        source_data=True,
    ),
    "derpp-pretraining": MethodInfo(
        "DER++ with pretraining images",
        DerppPretrainingHyperparameters,
        rehearsal=True,
        source_data=True,
    ),
    "er-ace": MethodInfo("ER-ACE", Hyperparameters, rehearsal=True),
    "twf": MethodInfo(
        "TwF",
        TwfHyperparameters,
        rehearsal=True,
        switches=("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F10", "F14"),
    ),
}
