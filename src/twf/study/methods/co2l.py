"""CO2L, Contrastive Continual Learning (Cha et al., 2021)."""

from __future__ import annotations

from twf.study.types import Count, Deviation, Hyperparameters, MethodInfo, NonNegative, Positive


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


METHOD = MethodInfo(
    title="CO2L",
    order=60,
    hyperparameters=Co2lHyperparameters,
    rehearsal=True,
    switches={
        "F11": Deviation(
            "CO2L's schedules",
            "the original's, without the benchmark's decay: ten epochs of warm-up from 0.01, a "
            "cosine to a thousandth; 100 epochs for the linear classifier",
            "the benchmark's: a constant rate, but for the decay that Split CIFAR-100 has for all "
            "methods; one pass for the linear classifier",
        ),
    },
)
