"""DER++ anchored to its initialization by EWC, an alternative to TwF (the paper's Figure 3)."""

from __future__ import annotations

from twf.study.methods.derpp import DerppHyperparameters
from twf.study.types import Count, MethodInfo, NonNegative


class DerppEwcHyperparameters(DerppHyperparameters):
    """DER++ anchored to its initialization: the penalty's weight, and images for its Fisher."""

    lambda_ewc: NonNegative
    fisher_images: Count


METHOD = MethodInfo(
    title="DER++ with EWC",
    order=82,
    hyperparameters=DerppEwcHyperparameters,
    rehearsal=True,
    without_buffer=True,
    all_gradients=True,
    source_data=True,
    not_printed="lambda_ewc",
)
