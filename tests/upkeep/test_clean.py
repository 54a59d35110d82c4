"""What `twf clean` finds and removes, and what it never touches."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from twf import files
from twf.errors import UserError
from twf.results import record
from twf.upkeep import clean

RUN = "split-target.er.16.s0"


@pytest.fixture
def put() -> Callable[..., Path]:
    """`put(path, age=seconds)`: a file of 10 bytes, last changed so long ago."""

    def make(path: str | Path, age: float = 0.0) -> Path:
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"0123456789")
        os.utime(path, (time.time() - age,) * 2)
        return path

    return make


@pytest.fixture(autouse=True)
def here(tiny_project: Path) -> Path:
    return tiny_project


def found() -> set[str]:
    return {str(path) for path in clean.find()}


def test_states_of_what_is_done_may_go(put) -> None:
    done = put(files.state_file("tiny", RUN), age=9).parent
    os.utime(done, (time.time() - 9,) * 2)
    put(files.record_file("tiny", RUN))
    put(files.state_file("tiny", "split-target.twf.16.s0"))  # interrupted: it goes on from there
    put(files.state_file("tiny", "split-target.co2l.16.s0"))  # done before, and going on
    put(files.record_file("tiny", "split-target.co2l.16.s0"), age=9)
    put(files.state_file("pretrain", "origin"))
    assert found() == {str(done)}


def test_a_state_of_other_parameters_than_the_record_stays(put) -> None:
    """The record is stale then, and the run would go on from the state."""
    path = put(files.state_file("tiny", RUN))
    state = json.dumps({"guard": {"parameters": "new"}})
    save_file({"x": np.zeros(1)}, path, metadata={"state": state})
    for each in (path, path.parent):
        os.utime(each, (time.time() - 9,) * 2)
    row = dict.fromkeys(record.SCHEMA.names) | {"digest": "old"}
    made = put(files.record_file("tiny", RUN))
    record.write(made, row)
    assert not found()
    record.write(made, row | {"digest": "new"})
    assert found() == {str(path.parent)}


def test_the_state_of_a_run_that_is_being_done_stays(put) -> None:
    folder = put(files.state_file("tiny", RUN), age=9).parent
    os.utime(folder, (time.time() - 9,) * 2)
    put(files.record_file("tiny", RUN))
    lock = put(folder.with_name(f"{folder.name}.lock"))
    items = clean.find()
    assert items == [folder]
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert found() == set()
        clean.remove(items)  # it has started meanwhile
        assert folder.exists()
    clean.remove(items)
    assert not folder.exists()


def test_partial_files_of_processes_that_are_gone_may_go(put) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    hours = 3 * 3600
    gone = put(f"data/.target.safetensors.{ended.pid}.partial", age=hours)
    put(f"data/.target.safetensors.{os.getpid()}.partial", age=hours)  # ours, and alive
    put("data/.target.safetensors.1.partial", age=hours)  # alive, perhaps another user's
    put(f"data/.origin.safetensors.{ended.pid}.partial")  # of another machine, perhaps
    put("archives/.partial/cifar10/cifar-10-python.tar.gz.01234567", age=hours)  # fetching goes on
    unpacked = put("archives/.extracted/x.tar.gz.01234567.partial/x", age=hours).parent
    lock = put("archives/.extracted/x.tar.gz.01234567.lock")
    assert found() == {str(gone), str(unpacked)}
    with lock.open() as file:  # unpacking goes on
        fcntl.flock(file, fcntl.LOCK_EX)
        assert found() == {str(gone)}


def test_logs_may_go(put) -> None:
    log = put(files.log_file("tiny", RUN))
    put(log.parent / "more.log")
    engines = {".snakemake/log/one.snakemake.log", ".snakemake/twf-123.log"}
    for name in engines:
        put(name)
    assert found() == {"logs/tiny"} | engines
    assert clean.size(Path("logs/tiny")) == 20


def test_no_link_is_followed(put, tmp_path) -> None:
    outside = tmp_path / "outside"
    put(outside / "x.log")
    for link in ("logs/dropped", "states"):
        Path(link).parent.mkdir(exist_ok=True)
        Path(link).symlink_to(outside)
    inside = put("logs/tiny/a.log").parent
    (inside / "link").symlink_to(outside)
    items = clean.find()
    assert items == [inside]
    clean.remove(items)
    assert not inside.exists()
    assert [path.name for path in outside.rglob("*")] == ["x.log"]


def test_nothing_goes_while_snakemake_is_at_work(put) -> None:
    log = put("logs/tiny/a.log")
    put(".snakemake/locks/0.output.lock")
    items = clean.find()
    with pytest.raises(UserError, match="snakemake --unlock"):
        clean.remove(items)
    assert log.exists()
    shutil.rmtree(".snakemake")
    clean.remove(items)
    assert not log.exists()


def test_what_was_made_is_never_among_it(tiny_inputs, put) -> None:
    for kept in (files.record_file("tiny", RUN), "results/dropped/runs/x.parquet", "archives/a/x"):
        put(kept)
    put("wandb/offline-run-1/run-a.wandb")
    assert found() == set()
