"""The methods in the order of the paper's tables, with their hyperparameters. No torch here.

The loss of a method is in `twf.learning.methods`, in the file of the same name.
"""

import dataclasses
from typing import Annotated

from pydantic import Field

from twf.study.types import Count, Hyperparameters, NonNegative, Positive


@dataclasses.dataclass(frozen=True)
class MethodInfo:
    """What planning and tables need to know of a method."""

    title: str
    hyperparameters: type[Hyperparameters] = Hyperparameters
    rehearsal: bool = False  # it has a buffer
    every_class: bool = False  # its buffer keeps images of each class
    without_buffer: bool = False  # it can also learn without one
    at_once: bool = False  # all tasks are one, as an upper bound
    source_data: bool = False  # it needs the source's images while it learns
    not_printed: str | None = None  # a hyperparameter whose value the paper does not print
    switches: tuple[str, ...] = ()  # those that its loss asks for


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
    """CO2L: a batch of its own, temperatures, and the linear classifier's rate."""

    batch_size: Count
    tau: Positive
    kappa: Positive
    kappa_star: Positive
    lambda_ird: NonNegative  # of the relation distillation
    lr_linear: Positive
    lr_linear_decay: Positive
    chunks: Count = 1  # of a batch, which are contrasted apart


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

    share: Annotated[float, Field(ge=0, lt=1)]  # 0: its classes in the classifier, and no images


class TwfHyperparameters(DerppHyperparameters):
    """TwF: DER++'s, and the weights of feature propagation."""

    lambda_diversity: NonNegative  # the paper's lambda
    lambda_fp: NonNegative  # lambda_FP
    lambda_fp_replay: NonNegative  # lambda_FP^repl


METHODS: dict[str, MethodInfo] = {
    "joint": MethodInfo("Joint (UB)", at_once=True),
    "finetune": MethodInfo("Finetune"),
    "oewc": MethodInfo("oEWC", OewcHyperparameters, switches=("F15",)),
    "lwf": MethodInfo("LwF", LwfHyperparameters, switches=("F12",)),
    "er": MethodInfo("ER", rehearsal=True, without_buffer=True),
    "co2l": MethodInfo(
        "CO2L", Co2lHyperparameters, rehearsal=True, every_class=True, switches=("F11",)
    ),
    "icarl": MethodInfo(
        "iCaRL",
        IcarlHyperparameters,
        rehearsal=True,
        every_class=True,
        switches=("F13", "F16", "F17"),
    ),
    "derpp": MethodInfo("DER++", DerppHyperparameters, rehearsal=True, without_buffer=True),
    "derpp-ewc": MethodInfo(
        "DER++ with EWC",
        DerppEwcHyperparameters,
        rehearsal=True,
        without_buffer=True,
        source_data=True,
        not_printed="lambda_ewc",
    ),
    "derpp-pretraining": MethodInfo(
        "DER++ with pretraining images",
        DerppPretrainingHyperparameters,
        rehearsal=True,
        source_data=True,
    ),
    "er-ace": MethodInfo("ER-ACE", rehearsal=True),
    "twf": MethodInfo(
        "TwF",
        TwfHyperparameters,
        rehearsal=True,
        without_buffer=True,
        switches=("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F10", "F14"),
    ),
}

# The places where the published code differs from the paper that can be switched, by the subject.
# docs/fidelity.md has what `paper` and `published` mean for each, and F9, a value of params.yaml.
# F8 chooses what tables show; the others change a method's loss.
SWITCHES = {
    "F1": "sibling's batch normalisation",
    "F2": "stored masks at a task's end",
    "F3": "diversity vectors",
    "F4": "gate",
    "F5": "mask replay",
    "F6": "stream loss",
    "F7": "distance",
    "F8": "forgetting",
    "F10": "diversity over replay",
    "F11": "CO2L's schedules",
    "F12": "LwF's distillation targets",
    "F13": "iCaRL's exemplars in training",
    "F14": "weights in TwF",
    "F15": "oEWC's Fisher information",
    "F16": "iCaRL's class means",
    "F17": "images that iCaRL's exemplars are chosen from",
}
