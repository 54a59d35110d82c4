"""DER++ with images of the source in its buffer, an alternative to TwF (Figure 3)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from twf.study.methods.derpp import DerppHyperparameters
from twf.study.types import MethodInfo


class DerppPretrainingHyperparameters(DerppHyperparameters):
    """DER++ that keeps a `share` of its buffer for images of the source.

    With 0 it is the control: the source's classes in the classifier, none of its images.
    """

    share: Annotated[float, Field(ge=0, lt=1)]


METHOD = MethodInfo(
    title="DER++ with pretraining images",
    order=84,
    hyperparameters=DerppPretrainingHyperparameters,
    rehearsal=True,
    source_data=True,
)
