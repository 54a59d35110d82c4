"""Keys in the environment come to no log, record, report or tracking folder."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from keys import KEYS, content, files_with_keys, has_key

from twf import files

RUN = "split-target.er.16.s0"
KEY = KEYS["WANDB_API_KEY"]


@pytest.mark.parametrize("where", ["name", "text", "parquet", "metadata", "gzip"])
def test_a_key_would_be_found(tmp_path: Path, where: str) -> None:
    path = tmp_path / ("x" if where != "name" else f"x-{KEY}")
    table = pa.table({"said": [KEY * 2] * 3})
    if where == "parquet":
        pq.write_table(table, path, compression="zstd")
    elif where == "metadata":
        pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"key": KEY}), path)
    elif where == "gzip":
        path.write_bytes(gzip.compress(KEY.encode()))
    else:
        path.write_text(KEY if where == "text" else "")
    (tmp_path / "y").write_text("nothing")
    assert files_with_keys(tmp_path) == [str(path)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a user with keys for Weights & Biases, S3, a mirror and git, who tracks offline."""
    home = tmp_path / "home"
    home.mkdir()
    others = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "AWS_", "TWF_"))}
    addresses = {
        "TWF_MIRROR": f"https://someone:{KEY}@127.0.0.1:9/archives",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "remote.origin.url",
        "GIT_CONFIG_VALUE_0": f"https://{KEY}@127.0.0.1:9/twf.git",
    }
    ours = {"HOME": str(home), "TWF_TRACKING": "offline", "OMP_NUM_THREADS": "1"}
    return others | KEYS | addresses | ours


def test_a_miniature_run_and_its_report_have_no_key(tiny_inputs, environment, tmp_path) -> None:
    """Of what is right, and of what fails: a record is torn, and a run is not there."""
    files.PUBLISHED.parent.mkdir(exist_ok=True)
    header = "table,benchmark,method,variant,protocol,buffer_size,final_average_accuracy"
    files.PUBLISHED.write_text(f"{header},final_forgetting\n")
    torn = files.record_file("tiny", "split-target.joint.s0")
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"PAR1")
    subprocess.run(["git", "init", "--quiet"], check=True)
    commit = ["commit", "--quiet", "--allow-empty", "--message", "x"]
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *author, *commit], check=True)
    said = []
    for words, code in {
        "data fetch svhn": 2,
        f"run tiny {RUN}": 0,
        "collect tiny --partial": 0,
        "table tiny": 0,
        "compare tiny": 0,
        "metrics tiny": 0,
        "figures tiny": 0,
        "describe tiny": 0,
        "report tiny": 0,
        "track sync tiny --mode offline": 1,  # of the torn record
        "run tiny split-target.er.99.s0": 2,
        "doctor": 1,  # there is no DVC in this folder
        "clean": 0,
    }.items():
        done = subprocess.run(
            [sys.executable, "-m", "twf", *words.split()],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, (words, done.stderr)
        said.append(done.stdout + done.stderr)
    (log,) = Path("wandb").glob("offline-run-*/*.wandb")
    assert b"/twf.git" not in content(log)
    assert files.report_file("tiny").exists()
    assert not has_key("".join(said))
    assert files_with_keys(tmp_path) == []  # the home too
