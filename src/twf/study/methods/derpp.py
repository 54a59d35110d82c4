"""DER++, Dark Experience Replay (Buzzega et al., 2020)."""

from __future__ import annotations

from twf.study.types import Hyperparameters, MethodInfo, NonNegative


class DerppHyperparameters(Hyperparameters):
    """DER++: weights of the replayed logits (alpha) and of the replayed labels (beta)."""

    alpha: NonNegative
    beta: NonNegative


METHOD = MethodInfo(
    title="DER++",
    order=80,
    hyperparameters=DerppHyperparameters,
    rehearsal=True,
    without_buffer=True,
    as_twf=True,
)
