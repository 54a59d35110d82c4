"""What this project does that no switch changes, and that the paper leaves open or does otherwise.

docs/fidelity.md has the same as a table; the report of a study has those that concern it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from twf.study.params import Params
from twf.study.plan import Plan


class Choice(NamedTuple):
    """One of them, in plain text."""

    subject: str
    paper: str
    here: str
    concerns: Callable[[Params, Plan], bool]  # whether a study has a run of it


def _runs(**values: object) -> Callable[[Params, Plan], bool]:
    """Whether a study has runs with these values."""
    return lambda _, plan: any(
        values.items() <= run.model_dump(include=set(values)).items() for run in plan.runs.values()
    )


CHOICES = (
    Choice(
        "pretraining",
        "its epochs alone",
        "optimizer, rate, batch and augmentation are ours",
        lambda params, plan: any(params.sources[name].pretraining for name in plan.sources),
    ),
    Choice(
        "pretraining on ImageNet",
        "50 epochs",
        "the weights that torchvision publishes",
        lambda _, plan: "imagenet" in plan.sources,
    ),
    Choice(
        "images of CUB-200",
        "resized to 224 x 224; the published code does so for tests, and for training makes the "
        "shorter side 224 and crops anywhere",
        "squashed to 224 x 224 for both, then cropped with padding",
        _runs(data="cub200"),
    ),
    Choice(
        "hyperparameters from SVHN",
        "none of their own",
        "those of Split CIFAR-100 from Tiny ImageNet",
        _runs(benchmark="split-cifar100", source="svhn"),
    ),
    Choice(
        "CO2L's buffer of 1000 on Split CUB-200",
        "the published code leaves slots empty in the second task, which count as black images",
        "filled from all images",
        _runs(benchmark="split-cub200", method="co2l", buffer=1000),
    ),
    Choice(
        "classes among which TwF's replayed labels compete",
        "no restriction is given",
        "those seen so far, as in the published code",
        _runs(method="twf"),
    ),
    Choice(
        "strength of the EWC anchor",
        "not given",
        "ours: untuned where no search has chosen it",
        _runs(method="derpp-ewc"),
    ),
    Choice(
        "Fisher information of the EWC anchor",
        "of the pretraining data",
        "of a part of them, drawn at random",
        _runs(method="derpp-ewc"),
    ),
    Choice(
        "pretraining images in DER++'s buffer",
        "percentages of the buffer, in a figure",
        "shares of ours; a head widened by the source's classes, over which all terms run, with a "
        "control that has this head and no such image",
        _runs(method="derpp-pretraining"),
    ),
    Choice(
        "nearest neighbours on the source",
        "their number and distance are not given",
        "20, by cosine, on maps averaged over positions",
        _runs(probes=True),
    ),
    Choice(
        "CKA with the initialization",
        "images and kernel are not given",
        "linear, of at most 1,000 test images of the benchmark",
        _runs(probes=True),
    ),
)


def of_study(params: Params, plan: Plan) -> list[Choice]:
    """Those that concern a study."""
    return [choice for choice in CHOICES if choice.concerns(params, plan)]
