"""Runs that are done are told of from their records: all that live tracking tells, and once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from wandb_files import stored_run, without_clocks
from wandb_server import StoredRun, WandbServer

from twf import files, study
from twf.errors import UserError
from twf.jobs.run import execute
from twf.results import record
from twf.study import Run, reading
from twf.study.params import Params, Tracking
from twf.tracking import client, view
from twf.tracking.sync import Synced, sync

CPU = torch.device("cpu")
SETTINGS = Tracking()


@pytest.fixture
def runs(tiny_project: Path, row: Callable[..., dict[str, Any]]) -> dict[str, Run]:
    """The planned runs of the miniature study by method; ER and Joint have a record."""
    loaded = reading.load(files.PARAMS)
    found = {run.method: run for run in study.expand(loaded, "tiny").runs.values()}
    for method in ("er", "joint"):
        write(row(found[method]))
    return found


def write(record_row: dict[str, Any]) -> None:
    record.write(files.record_file("tiny", record_row["run"]), record_row)


def read(run: Run) -> dict[str, Any]:
    (found,) = record.read(files.record_file("tiny", run.id)).to_pylist()
    return found


def sync_all(runs: dict[str, Run], mode: str) -> Synced:
    return sync(SETTINGS, "tiny", [files.record_file("tiny", r.id) for r in runs.values()], mode)


def counts(synced: Synced) -> tuple[int, int, int]:
    """Sent, skipped, failed."""
    return len(synced.sent), len(synced.skipped), len(synced.failed)


def stored(server: WandbServer, run: Run) -> StoredRun:
    return server.runs["twf-tiny", view.identity(read(run))]


def rows_of(stored: StoredRun) -> list[dict[str, Any]]:
    """The charts' rows that the server has, and that the row of the matrices ends them."""
    *found, matrices = map(without_clocks, stored.history)
    assert [row.pop("_step") for row in found] == list(range(len(found)))
    assert {"_step", "matrix/table", "matrix/class-il", "matrix/task-il"} == matrices.keys()
    return found


def test_a_run_told_later_is_the_same_as_one_told_live(tiny_inputs, no_key, tiny_values):
    tiny_values["tracking"] = {"mode": "offline"}
    loaded: Params = reading.check(tiny_values)
    (run,) = [r for r in study.expand(loaded, "tiny").runs.values() if r.method == "twf"]
    execute(loaded, run, CPU)
    (folder,) = Path("wandb").glob("offline-run-*")
    live = stored_run(folder)
    shutil.rmtree("wandb")
    assert counts(sync_all({"twf": run}, "auto")) == (1, 0, 0)
    (folder,) = Path("wandb").glob("offline-run-*")
    later = stored_run(folder)

    for kind in (live, later):
        for name in ("start_time", "runtime", "telemetry", "config"):
            kind["run"].ClearField(name)
        for values in (kind["history"][-1], kind["summary"]):  # a table's name is new each time
            values.pop("matrix/table/_latest_artifact_path", None)
            values.pop("matrix/table/artifact_path", None)
    assert live == later
    assert len(live["history"]) == 7 and live["config"]["hyperparameters"]["lambda_fp"] == 0.5


def test_offline_each_run_is_written_once(runs, no_key):
    assert counts(sync_all(runs, "auto")) == (2, 0, 0)
    before = sorted(path.name for path in Path("wandb").glob("offline-run-*"))
    assert len(before) == 2
    assert counts(sync_all(runs, "offline")) == (0, 2, 0)
    assert sorted(path.name for path in Path("wandb").glob("offline-run-*")) == before


def test_a_run_tracked_live_is_not_told_again(tiny_inputs, no_key, tiny_values):
    tiny_values["tracking"] = {"mode": "offline"}
    loaded = reading.check(tiny_values)
    (run,) = [r for r in study.expand(loaded, "tiny").runs.values() if r.method == "er"]
    execute(loaded, run, CPU)
    assert counts(sync_all({"er": run}, "offline")) == (0, 1, 0)


def test_offline_what_was_not_told_to_its_end_is_told_again(runs, no_key):
    sync_all(runs, "offline")
    (folder,) = client.folders(view.identity(read(runs["er"])))
    (folder / client.MARK).unlink()  # as after a kill
    assert sync_all(runs, "offline").sent == [runs["er"].id]


def test_a_run_done_anew_is_told_again(runs, row, no_key):
    sync_all(runs, "offline")
    write(row(runs["er"], seconds=99.0))
    assert sync_all(runs, "offline").sent == [runs["er"].id]
    assert counts(sync_all(runs, "offline")) == (0, 2, 0)


def test_a_folder_of_a_run_whose_name_ends_alike_is_none_of_its_own(runs, no_key):
    sync_all(runs, "offline")
    known = view.identity(read(runs["er"]))
    assert len(client.folders(known)) == 1
    assert client.folders(known.removeprefix("tiny.")) == []


def test_wandb_dir_is_where_the_folders_are(runs, no_key, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    sync_all(runs, "offline")
    assert counts(sync_all(runs, "offline")) == (0, 2, 0)
    assert len(list((tmp_path / "elsewhere" / "wandb").glob("offline-run-*"))) == 2
    assert not Path("wandb").exists()


def test_online_each_run_is_sent_once(runs, server):
    assert counts(sync_all(runs, "auto")) == (2, 0, 0)
    er = stored(server, runs["er"])
    assert er.state == "finished"
    assert rows_of(er) == view.rows(read(runs["er"]))
    assert view.is_told(er.summary, read(runs["er"]))
    assert er.about["groupName"] == "split-target.er.16"
    assert er.config["hyperparameters"]["value"] == {"lr": 0.05}
    upserts = server.requests["UpsertBucket"]
    assert counts(sync_all(runs, "online")) == (0, 2, 0)
    assert server.requests["UpsertBucket"] == upserts and len(er.history) == 7


def test_an_unfinished_run_there_is_replaced_row_by_row(runs, server):
    """Its rows are not there twice, nor are those that a later record does not have."""
    row = read(runs["er"])
    begun = StoredRun(summary={"_step": 1, "loss/total": 9.0})
    begun.history = [{"_step": i, "loss/total": 9.0, "phase": 0} for i in range(2)]
    server.runs["twf-tiny", view.identity(row)] = begun
    assert sync_all({"er": runs["er"]}, "online").sent == [runs["er"].id]
    assert rows_of(stored(server, runs["er"])) == view.rows(row)


def test_a_diverged_run_is_there_with_its_status(runs, row, server):
    told = row(runs["lwf"], status="diverged", reason="loss term a not finite")
    told |= {"history": told["history"][:1], "accuracy_class_il": [], "accuracy_task_il": []}
    told["history"][0] |= {"loss": float("nan"), "terms": {"a": float("nan")}}
    write(told)
    assert counts(sync_all({"lwf": runs["lwf"]}, "online")) == (1, 0, 0)
    there = stored(server, runs["lwf"])
    assert there.summary["status"] == "diverged"
    assert there.summary["reason"] == "loss term a not finite"
    assert len(there.history) == 1
    assert counts(sync_all({"lwf": runs["lwf"]}, "online")) == (0, 1, 0)


def test_what_wandb_sync_sent_is_not_sent_again(runs, server):
    """Offline where the runs are done, `wandb sync` where there is a network."""
    sync_all(runs, "offline")
    folders = sorted(map(str, Path("wandb").glob("offline-run-*")))
    command = [sys.executable, "-m", "wandb", "sync", *folders]
    subprocess.run(command, check=True, capture_output=True)
    assert rows_of(stored(server, runs["er"])) == view.rows(read(runs["er"]))
    assert counts(sync_all(runs, "online")) == (0, 2, 0)


def test_a_record_that_cannot_be_read_does_not_stop_the_others(runs, server):
    files.record_file("tiny", runs["er"].id).write_bytes(b"PAR1")
    synced = sync_all(runs, "online")
    assert counts(synced) == (1, 0, 1)
    assert "cannot be read" in synced.failed[runs["er"].id]


def test_a_run_that_the_server_refuses_does_not_stop_the_others(runs, server):
    server.refused.add(view.identity(read(runs["joint"])))
    synced = sync_all(runs, "online")
    assert counts(synced) == (1, 0, 1) and runs["joint"].id in synced.failed
    server.refused.clear()
    assert counts(sync_all(runs, "online")) == (1, 1, 0)


@pytest.mark.parametrize("name", ["../../../hacked", "/tmp/hacked", "$(touch hacked)"])
def test_a_record_of_a_hostile_run_writes_nothing_elsewhere(runs, no_key, tmp_path, name):
    write(read(runs["er"]) | {"run": "split-target.er.16.s0"})
    path = files.record_file("tiny", runs["er"].id)
    record.write(path, read(runs["er"]) | {"run": name, "study": name})
    before = set(tmp_path.iterdir())
    sync(SETTINGS, "tiny", [path], "offline")
    assert set(tmp_path.iterdir()) == before
    assert not list(tmp_path.rglob("hacked"))


def test_a_server_that_does_not_answer_is_a_mistake_to_mend(runs, server):
    server.down = True
    with pytest.raises(UserError, match="does not answer .* --mode offline"):
        sync_all(runs, "online")


def test_online_needs_a_key(runs, no_key):
    with pytest.raises(UserError, match="no key .*`wandb login`"):
        sync_all(runs, "online")
    assert not Path("wandb").exists()


def test_without_wandb_it_says_so(runs, no_key, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if not installed
    with pytest.raises(UserError, match="wandb is not installed"):
        sync_all(runs, "offline")


def test_without_a_record_it_says_so(runs, no_key):
    with pytest.raises(UserError, match="no records of study tiny"):
        sync_all({"twf": runs["twf"]}, "offline")


def test_it_needs_no_torch():
    code = "import sys, twf.tracking.sync; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
