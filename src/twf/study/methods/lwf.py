"""LwF, Learning without Forgetting (Li and Hoiem, 2017)."""

from __future__ import annotations

from twf.study.types import Deviation, Hyperparameters, MethodInfo, NonNegative, Positive


class LwfHyperparameters(Hyperparameters):
    """LwF: the distillation's weight and temperature (tau), and the weight of `sum theta^2`."""

    alpha: NonNegative
    tau: Positive
    weight_decay: NonNegative


METHOD = MethodInfo(
    title="LwF",
    order=40,
    hyperparameters=LwfHyperparameters,
    switches={
        "F12": Deviation(
            "LwF's distillation targets",
            "logits of the images as training normalises them",
            "logits of images that are not normalised",
        ),
    },
)
