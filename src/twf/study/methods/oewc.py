"""oEWC, online Elastic Weight Consolidation (Schwarz et al., 2018)."""

from __future__ import annotations

from twf.study.types import Deviation, Hyperparameters, MethodInfo, NonNegative


class OewcHyperparameters(Hyperparameters):
    """oEWC: the penalty's weight (the paper's lambda) and the decay of past Fisher information."""

    lambda_ewc: NonNegative
    gamma: NonNegative


METHOD = MethodInfo(
    title="oEWC",
    order=30,
    hyperparameters=OewcHyperparameters,
    all_gradients=True,
    switches={
        "F15": Deviation(
            "oEWC's Fisher information",
            "evaluation mode, every image once without augmentation",
            "training mode, one image at a time, so each has its own batch statistics and the "
            "running ones are overwritten just before evaluation; augmented images, the last "
            "incomplete batch dropped",
        ),
    },
)
