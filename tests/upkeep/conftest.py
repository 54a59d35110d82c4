"""What the tests of `twf doctor` share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from twf.upkeep.doctor.check import Check


@pytest.fixture
def only() -> Callable[[Iterator[Check], str], Check]:
    """`only(checks, name)`: the one check of this name."""

    def find(checks: Iterator[Check], name: str) -> Check:
        (check,) = [check for check in checks if check.name == name]
        return check

    return find
