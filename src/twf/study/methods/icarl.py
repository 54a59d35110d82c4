"""iCaRL (Rebuffi et al., 2017)."""

from __future__ import annotations

from twf.study.types import Deviation, Hyperparameters, MethodInfo, NonNegative


class IcarlHyperparameters(Hyperparameters):
    """iCaRL: the weight of `sum theta^2`."""

    weight_decay: NonNegative


METHOD = MethodInfo(
    title="iCaRL",
    order=70,
    hyperparameters=IcarlHyperparameters,
    rehearsal=True,
    switches={
        "F13": Deviation(
            "iCaRL's exemplars in training",
            "the stored images",
            "multiplied by the normalisation's std, its mean added, rows and columns swapped",
        ),
    },
)
