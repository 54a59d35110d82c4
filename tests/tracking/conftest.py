"""Runs to track, and a home without a key for Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb
from made import execute

from twf import files, study
from twf.jobs.provenance import Origin
from twf.jobs.run import columns_before
from twf.results import record
from twf.study import Run, reading
from twf.tracking.mode import SWITCH

Row = dict[str, Any]


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


@pytest.fixture
def tracked(
    shallow: None, tiny_inputs: Any, tiny_values: dict[str, Any], no_key: Path
) -> Callable[[str], Row]:
    """`tracked(method)` does the miniature run, offline; its record."""

    def do(method: str) -> Row:
        loaded = reading.check(tiny_values | {"tracking": {"mode": "offline"}})
        (run,) = [r for r in study.expand(loaded, "tiny").runs.values() if r.method == method]
        execute(loaded, run, torch.device("cpu"))
        return record.read(files.record_file(run.study, run.id)).to_pylist()[0]

    return do


@pytest.fixture
def row() -> Callable[..., Row]:
    """A whole record of a run of two tasks; keywords replace columns."""

    def make(run: Run, **columns: Any) -> Row:
        origin = Origin(
            code={"version": "0.1.0", "commit": "abc1234", "method_hash": "00ff"},
            inputs={"train_fingerprint": "d00d"},
            versions={"torch": "2.13.0"},
            device="a CPU",
            gpu=None,
            execution="plain",
            precision=run.precision,
            deterministic=True,
        )
        phases = 1 if run.method == "joint" else 2
        history = [
            {"phase": p, "epoch": e, "seconds": 1.0, "loss": 0.75, "terms": {"a": 0.5, "b": 0.25}}
            for p in range(phases)
            for e in range(2)
        ]
        started = datetime(2026, 1, 1, tzinfo=UTC)
        return columns_before(run, {"parameters": run.values}, origin, started) | {
            "status": "finished",
            "reason": None,
            "accuracy_class_il": [[90.0, 30.0], [70.0, 80.0]][:phases],
            "accuracy_task_il": [[95.0, 50.0], [85.0, 90.0]][:phases],
            **{name: [] for name in record.PROBED},
            "history": history,
            "seconds": 12.34,
            **columns,
        }

    return make
