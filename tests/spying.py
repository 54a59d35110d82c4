"""Looking on at the calls of a method, which does what it does."""

from collections.abc import Callable
from typing import Any

import pytest


def spy(patch: pytest.MonkeyPatch, owner: Any, name: str, tell: Callable[..., Any]) -> None:
    """From now on, `tell(result, *arguments)` at each call of a method of `owner`."""
    call = getattr(owner, name)

    def told(*arguments: Any, **named: Any) -> Any:
        made = call(*arguments, **named)
        tell(made, *arguments)
        return made

    patch.setattr(owner, name, told)
