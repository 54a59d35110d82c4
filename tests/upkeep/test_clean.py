"""What `twf clean` finds and removes, and what it never touches."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from twf import files
from twf.errors import UserError
from twf.study.params import Params
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


def found(params: Params, *kinds: str, study: str | None = None) -> set[str]:
    return {str(item.path) for item in clean.find(params, study, kinds)}


@pytest.fixture
def params(tiny_project: Path, tiny_values: dict) -> Params:
    return Params.model_validate(tiny_values)


def test_records_that_no_study_plans_may_go(params, put) -> None:
    put(files.record_file("tiny", RUN))
    gone = put(files.record_file("tiny", "split-target.er.99.s0"))
    other = put(files.record_file("dropped", RUN))
    put("results/published.csv")
    assert found(params, "records") == {str(gone), str(other)}
    assert found(params, "records", study="tiny") == {str(gone)}


def test_a_study_whose_runs_are_not_known_yet_keeps_its_records_and_states(
    tiny_project, tiny_values, put
) -> None:
    tiny_values["studies"]["tuned"] = tiny_values["studies"]["tiny"] | {
        "best_hyperparameters": "best.yaml"
    }
    params = Params.model_validate(tiny_values)
    put(files.record_file("tuned", "split-target.er.99.s0"))
    put(files.state_file("tuned", "split-target.er.99.s0"))
    assert found(params) == set()


def test_states_of_what_is_done_or_not_planned_may_go(params, put) -> None:
    done, goes_on = put(files.state_file("tiny", RUN), age=9), "split-target.twf.16.s0"
    os.utime(done.parent, (time.time() - 9,) * 2)
    put(files.record_file("tiny", RUN))
    put(files.state_file("tiny", goes_on))
    put(files.state_file("tiny", "split-target.co2l.16.s0"))  # done before, and going on
    put(files.record_file("tiny", "split-target.co2l.16.s0"), age=9)
    put(files.state_file("pretrain", "origin"))
    orphans = {
        str(put(files.state_file(*names)).parent)
        for names in (("dropped", RUN), ("tiny", "no-run"), ("pretrain", "no-source"))
    }
    put(files.CALIBRATION)
    assert found(params, "states") == {str(done.parent)} | orphans


def test_the_state_of_a_run_that_is_being_done_stays(params, put) -> None:
    folder = put(files.state_file("dropped", RUN)).parent
    lock = put(folder.with_name(f"{folder.name}.lock"))
    items = clean.find(params, None, ["states"])
    assert len(items) == 1
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert found(params, "states") == set()
        clean.remove(items)  # it has started meanwhile
        assert folder.exists()
    clean.remove(items)
    assert not folder.exists()


def test_partial_files_of_processes_that_are_gone_may_go(params, put) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    hours = 3 * 3600
    gone = put(f"data/.target.safetensors.{ended.pid}.partial", age=hours)
    in_study = put(f"results/tiny/runs/.x.parquet.{ended.pid}.partial", age=hours)
    put(f"data/.target.safetensors.{os.getpid()}.partial", age=hours)  # ours, and alive
    put(f"data/.origin.safetensors.{ended.pid}.partial")  # of another machine, perhaps
    put("archives/.partial/cifar10/cifar-10-python.tar.gz.01234567", age=hours)  # fetching goes on
    unpacked = put("archives/.extracted/x.tar.gz.01234567.partial/x", age=hours).parent
    lock = put("archives/.extracted/x.tar.gz.01234567.lock")
    assert found(params, "partials") == {str(gone), str(in_study), str(unpacked)}
    assert found(params, "partials", study="tiny") == {str(in_study)}
    with lock.open() as file:  # unpacking goes on
        fcntl.flock(file, fcntl.LOCK_EX)
        assert found(params, "partials") == {str(gone), str(in_study)}


def test_logs_and_sent_runs_may_go(params, put) -> None:
    put(files.log_file("tiny", RUN))
    put("logs/data/target.log")
    engines = {".snakemake/log/one.snakemake.log", ".snakemake/twf-123.log"}
    for name in engines:
        put(name)
    put("wandb/offline-run-1/run-a.wandb")
    put("wandb/offline-run-1/run-a.wandb.synced")
    put("wandb/offline-run-2/run-b.wandb")
    assert found(params, "logs") == {"logs/tiny", "logs/data"} | engines
    assert found(params, "logs", study="tiny") == {"logs/tiny"}
    assert found(params, "wandb") == {"wandb/offline-run-1"}
    sizes = {str(item.path): item.size for item in clean.find(params, None)}
    assert sizes["wandb/offline-run-1"] == 20


def test_archives_go_only_if_asked_for_and_once_all_is_made_from_them(
    params, tiny_values, put
) -> None:
    archive = put(files.archive_folder("cifar10") / "cifar-10-python.tar.gz").parent
    mine = put("archives/mine/x")
    target = tiny_values["datasets"]["target"]
    del target["file"]
    target |= {"reader": "official", "archive": "cifar10", "classes": 10}
    params = Params.model_validate(tiny_values)
    assert found(params, "archives") == set()
    tiny_values["datasets"]["again"] = target | {"size": 32}
    both = Params.model_validate(tiny_values)
    put(files.data_file("target"))
    assert found(params) == set()
    assert found(params, "archives") == {str(archive)}
    assert found(both, "archives") == set()
    clean.remove(clean.find(params, None, ["archives"]))
    assert not archive.exists() and mine.exists()


def test_no_link_is_followed(params, put, tmp_path) -> None:
    outside = tmp_path / "outside"
    put(outside / "runs" / "x.parquet")
    put(outside / "x.log")
    for link in ("results/dropped", "logs/dropped", "states"):
        Path(link).parent.mkdir(exist_ok=True)
        Path(link).symlink_to(outside)
    put(files.record_file("other", "x"))
    Path("results/other/runs/y.parquet").symlink_to(outside / "x.log")
    inside = put("logs/tiny/a.log").parent
    (inside / "link").symlink_to(outside)
    items = clean.find(params, None)
    assert {str(item.path) for item in items} == {"results/other/runs/x.parquet", "logs/tiny"}
    clean.remove(items)
    assert not inside.exists()
    assert sorted(path.name for path in outside.rglob("*")) == ["runs", "x.log", "x.parquet"]


def test_nothing_goes_while_snakemake_is_at_work(params, put) -> None:
    log = put("logs/tiny/a.log")
    put(".snakemake/locks/0.output.lock")
    items = clean.find(params, None)
    with pytest.raises(UserError, match="snakemake --unlock"):
        clean.remove(items)
    assert log.exists()
    shutil.rmtree(".snakemake")
    clean.remove(items)
    assert not log.exists()


def test_inputs_and_planned_records_are_never_among_it(tiny_inputs, put) -> None:
    put(files.record_file("tiny", RUN))
    for kind in clean.FINDERS:
        assert found(tiny_inputs, kind) == set()


def test_an_unknown_kind_is_answered_with_those_there_are(params) -> None:
    with pytest.raises(UserError, match="'data'.*records, states"):
        clean.find(params, None, ["data"])
