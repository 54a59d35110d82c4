"""Every place where the published code differs from the paper: F1, F2, ...

A method's own stand in its file; F8 chooses what tables show, and F9 is a value of params.yaml.
"""

from __future__ import annotations

from twf.study.methods import METHODS
from twf.study.types import Deviation

_OF_NO_METHOD = {
    "F8": Deviation(
        "forgetting",
        "maximum over the phases before the last, minus final: can be negative",
        "maximum over all phases, the last included",
    ),
    "F9": Deviation(
        "lambda_FP on Split CIFAR-10, buffer 500",
        "5e-3",
        "5e-4, in a later release",
    ),
}

_ALL = _OF_NO_METHOD | {k: v for info in METHODS.values() for k, v in info.switches.items()}
SWITCHES = {name: _ALL[name] for name in sorted(_ALL, key=lambda name: int(name[1:]))}
