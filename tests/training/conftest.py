"""Miniature runs, and what of them must be alike each time."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from twf.data.store import Dataset
from twf.study import Run
from twf.tracking.live import NoTracker
from twf.training import loop
from twf.training.checkpoints import Checkpoint
from twf.training.loop import Outcome
from twf.training.resume import Keeper

CPU = torch.device("cpu")


@pytest.fixture
def train(
    tiny_run: Callable[..., Run],
    tiny_dataset: Dataset,
    tiny_source: Dataset,
    tiny_checkpoint: Checkpoint,
    tmp_path: Path,
) -> Callable[..., Outcome]:
    """`train(method, **changes)`: the miniature run of a method; keywords change the run.

    It starts anew, unless it is given a keeper that has saved it before.
    """

    def once(
        method: str,
        keeper: Keeper | None = None,
        device: torch.device = CPU,
        execution: str = "plain",
        **changes: Any,
    ) -> Outcome:
        run = tiny_run(method, **changes)
        source = None if run.source_data is None else tiny_source
        inputs = tiny_dataset, source, tiny_checkpoint
        if keeper is None:
            keeper = Keeper(tmp_path / "fresh" / "state.safetensors", {}, math.inf)
            keeper.forget()
        outcome = loop.train(run, *inputs, device, NoTracker(), lambda *_: None, keeper, execution)
        keeper.wait()
        return outcome

    return once


@pytest.fixture
def result() -> Callable[[Outcome], dict[str, Any]]:
    """`result(outcome)`: everything of an outcome but its clock times."""

    def without_times(outcome: Outcome) -> dict[str, Any]:
        history = [{k: v for k, v in e.items() if k != "seconds"} for e in outcome.history]
        return vars(outcome) | {"history": history}

    return without_times
