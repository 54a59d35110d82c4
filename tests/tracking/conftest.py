"""A home without a key for Weights & Biases."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import wandb

from twf.tracking.mode import SWITCH


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A home without a key, which is given; wandb forgets what it knew."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("NETRC", SWITCH, *(name for name in os.environ if name.startswith("WANDB_"))):
        monkeypatch.delenv(name, raising=False)
    wandb.teardown()
    yield home
    wandb.teardown()
