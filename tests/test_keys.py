"""Keys in the environment come to no log, record, report or tracking folder."""

from __future__ import annotations

import gzip
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import wandb
from commands import publish_nothing
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
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That of a user with keys for Weights & Biases, S3 and git, who tracks offline."""
    wandb.teardown()  # it forgets what it knew, WANDB_SERVICE too, which must not come back below
    (tmp_path / "home").mkdir()
    for name in os.environ:
        if name.startswith(("WANDB_", "AWS_", "TWF_")):
            monkeypatch.delenv(name)
    ours = {
        "HOME": str(tmp_path / "home"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "remote.origin.url",
        "GIT_CONFIG_VALUE_0": f"https://{KEY}@127.0.0.1:9/twf.git",
    }
    for name, value in (KEYS | ours).items():
        monkeypatch.setenv(name, value)
    yield
    wandb.teardown()


@pytest.mark.slow
@pytest.mark.usefixtures("_environment")
def test_a_miniature_run_and_its_report_have_no_key(
    tiny_inputs, twf, tmp_path, monkeypatch
) -> None:
    """Of what is right, and of what fails: a record is torn, and a run is not there."""
    monkeypatch.setenv("TWF_TRACKING", "offline")
    publish_nothing()
    torn = files.record_file("tiny", "split-target.joint.s0")
    torn.parent.mkdir(parents=True)
    torn.write_bytes(b"PAR1")
    subprocess.run(["git", "init", "--quiet"], check=True)
    commit = ["commit", "--quiet", "--allow-empty", "--message", "x"]
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *author, *commit], check=True)
    said = []
    for words, code in {
        f"run tiny {RUN}": 0,
        "report tiny --partial": 0,
        "report tiny": 0,
        "run tiny split-target.er.99.s0": 2,
        "doctor": 0,
    }.items():
        done = twf(words)
        assert done.code == code, (words, done)
        said.append(done.out + done.err)
    (log,) = Path("wandb").glob("offline-run-*/*.wandb")
    assert b"/twf.git" not in content(log)
    assert files.report_file("tiny").exists()
    assert not has_key("".join(said))
    assert files_with_keys(tmp_path) == []  # the home too
