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
            "multiplied by the normalisation's std, its mean added, transposed",
        ),
        "F16": Deviation(
            "iCaRL's class means",
            "over a class's exemplars",
            "the buffer's empty slots count as black exemplars of class 0, after its own",
        ),
        "F17": Deviation(
            "images that iCaRL's exemplars are chosen from",
            "all of the class",
            "those of one shuffled pass over the training set, exemplars included, without its "
            "last incomplete batch",
        ),
    },
)
