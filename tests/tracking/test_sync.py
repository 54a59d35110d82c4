"""Completed runs are sent from their records: all that live tracking sends, and once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import wandb
from wandb_files import stored_run, without_clocks
from wandb_server import StoredRun, WandbServer

from twf import files, study
from twf.errors import UserError
from twf.results import record
from twf.study import Run, reading
from twf.study.params import Tracking
from twf.tracking import client, view
from twf.tracking.sync import Synced, sync


@pytest.fixture
def runs(tiny_project: Path, row: Callable[..., dict[str, Any]]) -> dict[str, Run]:
    """The planned runs of the miniature study by method; ER and Joint have a record."""
    planned = study.expand(reading.load(files.PARAMS), "tiny")
    found = {run.method: run for run in planned.runs.values()}
    for method in ("er", "joint"):
        write(row(found[method]))
    return found


def write(row: dict[str, Any]) -> None:
    record.write(files.record_file("tiny", row["run"]), row)


def sync_all(runs: dict[str, Run], mode: str) -> Synced:
    return sync(Tracking(), "tiny", runs.values(), mode)


def counts(synced: Synced) -> tuple[int, int, int]:
    """Sent, skipped, failed."""
    return len(synced.sent), len(synced.skipped), len(synced.failed)


def offline_folders(place: Path = Path()) -> list[str]:
    return sorted(map(str, (place / "wandb").glob("offline-run-*")))


def stored(server: WandbServer, row: dict[str, Any]) -> StoredRun:
    return server.runs["twf-tiny", view.identity(row)]


def rows_of(stored: StoredRun) -> list[dict[str, Any]]:
    """The charts' rows that the server has; the row of the matrices ends them."""
    *found, matrices = map(without_clocks, stored.history)
    assert [row.pop("_step") for row in found] == list(range(len(found)))
    assert {"_step", "matrix/table", "matrix/class-il", "matrix/task-il"} == matrices.keys()
    return found


def test_a_run_sent_later_is_the_same_as_one_tracked_live(tracked):
    run = tracked("twf")
    (folder,) = offline_folders()
    live = stored_run(Path(folder))
    assert counts(sync_all({"twf": run}, "offline")) == (0, 1, 0)  # it is there
    shutil.rmtree("wandb")
    assert counts(sync_all({"twf": run}, "auto")) == (1, 0, 0)
    (folder,) = offline_folders()
    later = stored_run(Path(folder))

    for kind in (live, later):
        for name in ("start_time", "runtime", "telemetry", "config"):
            kind["run"].ClearField(name)
        for values in (kind["history"][-1], kind["summary"]):  # a table's name is new each time
            values.pop("matrix/table/_latest_artifact_path", None)
            values.pop("matrix/table/artifact_path", None)
    assert live == later
    assert len(live["history"]) == 7 and live["config"]["hyperparameters"]["lambda_fp"] == 0.5


def test_offline_each_execution_of_a_run_is_written_once(runs, row, record_of, no_key):
    assert counts(sync_all(runs, "auto")) == (2, 0, 0)
    before = offline_folders()
    assert len(before) == 2
    assert counts(sync_all(runs, "offline")) == (0, 2, 0)
    assert offline_folders() == before
    write(row(runs["er"], seconds=99.0))  # done again
    assert sync_all(runs, "offline").sent == [runs["er"].id]
    assert counts(sync_all(runs, "offline")) == (0, 2, 0)
    for folder in client.folders(view.identity(record_of(runs["er"]))):
        (folder / client.SENT).unlink(missing_ok=True)  # as after a kill
    assert sync_all(runs, "offline").sent == [runs["er"].id]


def test_a_folder_of_a_run_whose_name_ends_alike_is_not_its_own(runs, record_of, no_key):
    sync_all(runs, "offline")
    identity = view.identity(record_of(runs["er"]))
    assert len(client.folders(identity)) == 1
    assert client.folders(identity.removeprefix("tiny.")) == []


def test_wandb_dir_is_where_the_folders_are(runs, no_key, monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "elsewhere"))
    sync_all(runs, "offline")
    assert counts(sync_all(runs, "offline")) == (0, 2, 0)
    assert len(offline_folders(tmp_path / "elsewhere")) == 2 and not offline_folders()


def test_online_each_run_is_sent_once(runs, record_of, server):
    assert counts(sync_all(runs, "auto")) == (2, 0, 0)
    row = record_of(runs["er"])
    er = stored(server, row)
    assert er.state == "finished"
    assert rows_of(er) == view.rows(row)
    assert view.matches(er.summary, row)
    assert er.about["groupName"] == view.group(row)
    assert er.config["hyperparameters"]["value"] == {"lr": 0.05}
    upserts = server.requests["UpsertBucket"]
    assert counts(sync_all(runs, "online")) == (0, 2, 0)
    assert server.requests["UpsertBucket"] == upserts and len(er.history) == 7


def test_runs_with_other_parameters_than_planned_are_tagged_as_stale(
    runs, tiny_run, row, record_of, server
):
    """Others of the project are left alone; the tag goes where the parameters come back."""
    runs = {"er": runs["er"]}
    sync_all(runs, "online")
    first = stored(server, record_of(runs["er"]))
    theirs = server.runs["twf-tiny", "tiny.other.s0.01234567"] = StoredRun(about={"tags": ["a"]})
    tags, summary = first.about["tags"], dict(first.summary)
    config = {key: entry["value"] for key, entry in first.config.items()}
    assert view.STALE not in tags

    changed = {"er": tiny_run("er", epochs=3)}
    assert counts(sync_all(changed, "online")) == (0, 1, 0)  # the record is still the old one
    assert sorted(first.about["tags"]) == sorted([*tags, view.STALE])
    write(row(changed["er"]))
    assert counts(sync_all(changed, "online")) == (1, 0, 0)
    second = stored(server, row(changed["er"]))
    assert second is not first and view.STALE not in second.about["tags"]
    assert first.about["groupName"] != second.about["groupName"]
    assert counts(sync_all(runs, "online")) == (0, 1, 0)
    assert sorted(first.about["tags"]) == sorted(tags)
    assert view.STALE in second.about["tags"] and theirs.about == {"tags": ["a"]}
    assert first.summary == summary
    assert {key: entry["value"] for key, entry in first.config.items()} == config


def test_a_stale_record_is_tagged_offline_too(runs, tiny_run, no_key):
    changed = {"er": tiny_run("er", epochs=3), "joint": runs["joint"]}
    assert counts(sync_all(changed, "offline")) == (2, 0, 0)
    headers = [stored_run(Path(folder))["run"] for folder in offline_folders()]
    assert {header.display_name for header in headers if view.STALE in header.tags} == {
        runs["er"].id
    }


def test_an_unfinished_run_there_is_replaced_row_by_row(runs, record_of, server):
    """Its rows are not there twice, nor are those that a later record does not have."""
    row = record_of(runs["er"])
    begun = StoredRun(summary={"_step": 1, "loss/total": 9.0})
    begun.history = [{"_step": i, "loss/total": 9.0, "phase": 0} for i in range(2)]
    server.runs["twf-tiny", view.identity(row)] = begun
    assert sync_all({"er": runs["er"]}, "online").sent == [runs["er"].id]
    assert rows_of(stored(server, row)) == view.rows(row)


def test_a_diverged_run_is_there_with_its_status(runs, row, server):
    diverged = row(runs["lwf"], status="diverged", reason="loss term a not finite")
    diverged |= {
        "history": diverged["history"][:1],
        "accuracy_class_il": [],
        "accuracy_task_il": [],
    }
    diverged["history"][0] |= {"loss": float("nan"), "terms": {"a": float("nan")}}
    write(diverged)
    assert counts(sync_all({"lwf": runs["lwf"]}, "online")) == (1, 0, 0)
    there = stored(server, diverged)
    assert {"status": "diverged", "reason": diverged["reason"]}.items() <= there.summary.items()
    assert len(there.history) == 1
    assert counts(sync_all({"lwf": runs["lwf"]}, "online")) == (0, 1, 0)


def test_what_wandb_sync_sent_is_not_sent_again(runs, record_of, server):
    """Offline where the runs are done, `wandb sync` where there is a network."""
    sync_all(runs, "offline")
    command = [sys.executable, "-m", "wandb", "sync", *offline_folders()]
    subprocess.run(command, check=True, capture_output=True)
    row = record_of(runs["er"])
    assert rows_of(stored(server, row)) == view.rows(row)
    assert counts(sync_all(runs, "online")) == (0, 2, 0)


def test_a_run_that_fails_does_not_stop_the_others(runs, record_of, server):
    """The server refuses one; then the record of the other cannot be read."""
    server.refused.add(view.identity(record_of(runs["joint"])))
    synced = sync_all(runs, "online")
    assert synced.sent == [runs["er"].id] and synced.failed.keys() == {runs["joint"].id}
    server.refused.clear()
    wandb.teardown()  # as a new process, which holds no run that was refused
    files.record_file("tiny", runs["er"].id).write_bytes(b"PAR1")
    synced = sync_all(runs, "online")
    assert synced.sent == [runs["joint"].id] and synced.failed.keys() == {runs["er"].id}


@pytest.mark.parametrize("name", ["../../../hacked", "/tmp/hacked", "$(touch hacked)"])
def test_a_record_of_a_hostile_run_writes_nothing_elsewhere(
    runs, record_of, no_key, tmp_path, name
):
    path = files.record_file("tiny", runs["er"].id)
    record.write(path, record_of(runs["er"]) | {"run": name, "study": name})
    before = set(tmp_path.iterdir())
    sync_all({"er": runs["er"]}, "offline")
    assert set(tmp_path.iterdir()) == before
    assert not list(tmp_path.rglob("hacked"))


def test_a_server_that_does_not_answer_is_a_users_error(runs, server):
    server.down = True
    with pytest.raises(UserError, match="--mode offline"):
        sync_all(runs, "online")


def test_what_is_missing_is_named(runs, no_key, monkeypatch):
    with pytest.raises(UserError, match="WANDB_API_KEY"):
        sync_all(runs, "online")
    with pytest.raises(UserError, match="study tiny"):  # without a record
        sync_all({"twf": runs["twf"]}, "offline")
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if not installed
    with pytest.raises(UserError, match="wandb is not installed"):
        sync_all(runs, "offline")
    assert not Path("wandb").exists()
