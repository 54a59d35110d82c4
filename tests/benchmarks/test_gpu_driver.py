"""Work on a GPU machine without a network, rehearsed whole on this one at a tiny size."""

import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from benchmarks.gpu import driver, pack
from support import PROJECT

from twf import files
from twf.data import formats, store
from twf.errors import UserError
from twf.results import record

COMMIT = "0123456789" * 4
STEPS = ["steps", "--benchmark", "split-target", "--calls", "1", "--repeats", "1"]
TESTS = ["-q", "-p", "no:cacheprovider", "tests/learning/test_augmentation.py"]
SETTINGS = {
    "data": ["origin", "target"],
    "bring": ["prepare", "{name}"],
    "alone": {
        "facts": [30, "echo", "a machine"],
        "steps": [150, "python", "-m", "benchmarks", *STEPS, "--name", "steps"],
    },
    "beside": {"tests": [240, "python", "-m", "pytest", *TESTS]},
    "source": "origin",
    "execution": "plain",
    "jobs": 2,
    "runs": ["tiny/split-target.er.16.s0", "tiny/split-target.twf.16.s0"],
}


@pytest.mark.slow
def test_the_driver_makes_weights_and_records_of_what_was_packed(tiny_project, monkeypatch) -> None:
    here = tiny_project.parent / "driver"
    for name in ("src", "benchmarks", "tests", "workflow", "pyproject.toml", "constraints.txt"):
        (tiny_project / name).symlink_to(PROJECT / name)
    values = yaml.safe_load(files.PARAMS.read_text())
    values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["er", "twf"]
    for name in ("origin", "target"):
        values["datasets"][name]["file"] = str(here / f"{name}.npz")  # where its pieces are joined
    files.PARAMS.write_text(yaml.safe_dump(values, sort_keys=False))
    Path("driver.json").write_text(json.dumps(SETTINGS))
    monkeypatch.setattr(pack, "commit", lambda: COMMIT)
    monkeypatch.setenv("TWF_DRIVER", str(here))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)  # its own tests are all meant

    def drive(*words: str | Path) -> str:
        command = [sys.executable, "benchmarks/gpu/driver.py", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    data = [f"{name}=archives/{name}.npz" for name in ("origin", "target")]
    pack.main(data, Path("driver.json"), 0.01, "none")
    folders = sorted(pack.PACK.iterdir(), reverse=True)
    assert len(folders) > 1 + 2, "more than a piece of either data set"
    for folder in folders:  # in whatever order they come
        drive("begin", folder, "--until", "400")
    log, deadline = "", time.monotonic() + 300
    while not log.endswith("end\n") and time.monotonic() < deadline:
        time.sleep(1.0)
        log = (here / "out/driver.log").read_text()
    said = drive("collect", "out", "--weights")
    for step in ("facts", "steps", "pretrain", "tests", "data-target", "plan-tiny"):
        assert f"{step}: ok" in log, said
    with tarfile.open("out/found.tar.gz") as file:
        file.extractall("found", filter="data")
    paths = Path("found/results/tiny/runs").iterdir()
    rows = [row for path in paths for row in record.read(path).to_pylist()]
    assert {row["method"] for row in rows} == {"er", "twf"}
    assert {record.provenance(row)["code"]["commit"] for row in rows} == {COMMIT}
    pieces = sorted(Path("out").glob("origin.safetensors.*"))
    weights = here / "tree/checkpoints/origin.safetensors"
    assert b"".join(piece.read_bytes() for piece in pieces) == weights.read_bytes()
    assert Path("found/benchmarks/results/steps.json").exists()
    packed = formats.read_npz(Path("archives/target.npz"), 4).splits["train"].images
    images = store.load(here / "tree/data/target.safetensors").train_images.numpy()
    assert np.array_equal(np.unique(packed, axis=0), np.unique(images, axis=0)), "to the bit"


UNENDING = "trap 'touch saved; exit 143' TERM; while :; do sleep 0.1; done"


def test_a_step_at_its_end_is_told_before_it_is_killed(tmp_path, monkeypatch):
    """So that a run saves its state."""
    for name in ("HERE", "TREE", "OUT"):
        monkeypatch.setattr(driver, name, tmp_path)
    monkeypatch.setattr(driver, "left", lambda: 60.0)
    monkeypatch.setattr(driver, "settings", lambda: {"commit": COMMIT})
    assert not driver.do("unending", "sh", "-c", UNENDING, limit=4.0)
    assert (tmp_path / "saved").exists()


def test_a_pack_without_a_commit_is_refused(tiny_project, monkeypatch):
    monkeypatch.setattr(pack, "commit", lambda: COMMIT + "+")
    with pytest.raises(UserError, match="commit first"):
        pack.main([], Path("driver.json"), 50.0, "none")
