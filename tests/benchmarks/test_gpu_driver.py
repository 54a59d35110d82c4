"""Work on a GPU machine without a network, rehearsed whole on this one at a tiny size."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks.gpu import driver, pack, shards
from project import PROJECT

from twf.data import archive
from twf.errors import UserError
from twf.results import record

COMMIT = "0123456789" * 4
SETTINGS = {
    "data": ["origin", "target"],
    "bring": ["prepare", "{name}"],
    "facts": ["echo", "a machine"],
    "measure": [["steps", "--benchmark", "split-target", "--calls", "1", "--repeats", "1"]],
    "tests": ["-q", "-p", "no:cacheprovider", "tests/learning/test_tasks.py"],
    "source": "origin",
    "pretraining": "plain",
    "jobs": 2,
    "mps": [],
    "runs": ["tiny/split-target.er.16.s0", "tiny/split-target.twf.16.s0"],
    "execution": "plain",
}


@pytest.fixture
def checkout(tiny_project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project with the miniature study in place of its own; the test is in it."""
    names = ("src", "benchmarks", "tests", "workflow", "results/printed.csv")
    for name in (*names, "pyproject.toml", "constraints.txt"):
        (tiny_project / name).parent.mkdir(exist_ok=True)
        (tiny_project / name).symlink_to(PROJECT / name)
    values = yaml.safe_load((tiny_project / "params.yaml").read_text())
    values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["er", "twf"]
    here = tiny_project.parent / "driver"
    for name in ("origin", "target"):
        values["datasets"][name]["file"] = str(here / f"{name}.npz")  # where its shards are joined
    (tiny_project / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    (tiny_project / "driver.json").write_text(json.dumps(SETTINGS))
    monkeypatch.setattr(pack, "commit", lambda: COMMIT)
    monkeypatch.setenv("TWF_DRIVER", str(here))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # its own tests are all meant
    return tiny_project


def drive(*words: str | Path) -> str:
    command = [sys.executable, "benchmarks/gpu/driver.py", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def packed(mib: float = 50.0) -> list[Path]:
    """The folders that each go with a call, the images at most so many MiB in each."""
    data = [f"{name}=archives/{name}.npz" for name in ("origin", "target")]
    pack.main(data, None, Path("driver.json"), mib, "none")
    base = pack.PACK / "base"
    return [base, *(folder for folder in sorted(pack.PACK.iterdir()) if folder != base)]


@pytest.mark.slow
def test_the_driver_makes_weights_and_records_of_what_was_packed(checkout):
    folders = packed(mib=0.01)
    assert len(folders) > 1 + 2, "more than a piece of either data set"
    log = ""
    for folder in (folders[1], folders[0], *folders[2:]):  # in whatever order they come
        drive("begin", folder, "--until", "300")
    deadline = time.monotonic() + 200
    while not log.endswith("end\n") and time.monotonic() < deadline:
        time.sleep(1.0)
        log = (checkout.parent / "driver/out/driver.log").read_text()
    said = drive("collect", "out", "--weights")
    for step in ("facts", "steps-0", "pretrain", "tests", "data-target", "plan-tiny"):
        assert f"{step}: ok" in log, said
    with tarfile.open("out/found.tar.gz") as found:
        found.extractall("found", filter="data")
    rows = [
        row
        for path in Path("found/results/tiny/runs").iterdir()
        for row in record.read(path).to_pylist()
    ]
    assert {row["method"] for row in rows} == {"er", "twf"}
    for row in rows:
        assert record.provenance(row)["code"]["commit"] == COMMIT, "the tree is as it was packed"
    pieces = sorted(Path("out").glob("origin.safetensors.*"))
    weights = checkout.parent / "driver/tree/checkpoints/origin.safetensors"
    assert b"".join(piece.read_bytes() for piece in pieces) == weights.read_bytes()


UNENDING = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path("saved").touch(), sys.exit(143)))
while True:
    time.sleep(0.1)
"""


def test_a_step_at_its_end_is_told_before_it_is_killed(tmp_path, monkeypatch):
    """So that a run saves its state."""
    for name in ("HERE", "TREE", "OUT"):
        monkeypatch.setattr(driver, name, tmp_path)
    monkeypatch.setattr(driver, "left", lambda: 60.0)
    monkeypatch.setattr(driver, "settings", lambda: {"commit": COMMIT})
    assert not driver.python("unending", "-c", UNENDING, limit=4.0)
    assert (tmp_path / "saved").exists()


def test_what_is_cut_into_shards_is_joined_to_the_same_bits(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (1700, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(1700) % 3
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images[:5], y_test=[0] * 5)
    arrays = archive.read_npz(tmp_path / "a.npz", 3)
    made = shards.cut(arrays, tmp_path / "shards", "a", mib=0.3)
    assert len(made) > 1 and max(path.stat().st_size for path in made) <= 0.3 * 2**20
    shards.join(tmp_path / "shards", "a", tmp_path / "b.npz")
    again = archive.read_npz(tmp_path / "b.npz", 3)
    for split in ("train", "test"):
        assert np.array_equal(arrays.splits[split].images, again.splits[split].images)
        assert np.array_equal(arrays.splits[split].labels, again.splits[split].labels)
    assert arrays.classes == again.classes


def test_a_pack_names_its_commit_and_refuses_changes_without_one(checkout, monkeypatch):
    packed()
    assert json.loads((pack.PACK / "base/driver.json").read_text())["commit"] == COMMIT
    monkeypatch.setattr(pack, "commit", lambda: COMMIT + "+")
    with pytest.raises(UserError, match="commit first"):
        packed()


@pytest.mark.parametrize("entry", ["target", "nothing=archives/target.npz"])
def test_a_pack_says_what_is_wrong_with_its_data(checkout, entry):
    with pytest.raises(UserError, match="NAME=FILE.npz"):
        pack.main([entry], None, Path("driver.json"), 50.0, "none")


def test_later_calls_say_that_nothing_has_begun(checkout):
    command = [sys.executable, "benchmarks/gpu/driver.py", "collect", "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "nothing has begun in" in done.stderr
