"""Keys in the environment come to no log, record, report or tracking folder."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import wandb
from commands import publish_nothing
from keys import KEYS, files_with_keys, has_key

from twf import files

KEY = KEYS["WANDB_API_KEY"]


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
    """Of what is right, and of what fails."""
    monkeypatch.setenv("TWF_TRACKING", "offline")
    publish_nothing()
    subprocess.run(["git", "init", "--quiet"], check=True)
    for words, code in {
        "run tiny split-target.er.16.s0": 0,
        "report tiny --partial": 0,
        "run tiny split-target.er.99.s0": 2,
        "doctor": 0,
    }.items():
        done = twf(words)
        assert done.code == code, (words, done)
        assert not has_key(done.out + done.err)
    assert list(Path("wandb").glob("offline-run-*/*.wandb"))
    assert files.report_file("tiny").exists()
    assert files_with_keys(tmp_path) == []  # the home too
    (torn, table) = (tmp_path / name for name in (f"x-{KEY}", "y.parquet"))
    torn.touch()
    pq.write_table(pa.table({"said": [KEY * 2] * 3}), table, compression="zstd")
    assert sorted(files_with_keys(tmp_path)) == sorted([torn, table]), "a key would be found"
