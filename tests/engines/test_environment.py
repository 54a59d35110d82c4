"""What the engines need of the process and the folder that they run in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from processes import until

from twf.engines import environment
from twf.errors import UserError


@pytest.mark.parametrize("copy", [".dvc/tmp/exps/tmpab12", ".dvc/tmp/exps/standalone/tmpab12"])
def test_a_copy_that_dvc_made_is_refused(tmp_path, monkeypatch, copy):
    environment.refuse_copies_by_dvc()  # not the project itself
    (tmp_path / copy).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / copy)
    with pytest.raises(UserError, match="leave --temp and --queue away"):
        environment.refuse_copies_by_dvc()


@pytest.mark.parametrize("name", ["a{study}b", "}"])
def test_a_folder_whose_braces_snakemake_would_fill_is_refused(tmp_path, monkeypatch, name):
    environment.refuse_braces()  # not this one
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(UserError, match="rename that folder"):
        environment.refuse_braces()


def test_a_process_is_told_to_stop_when_its_parent_is_killed(tmp_path: Path) -> None:
    child = (
        "import signal, sys, time; from pathlib import Path; from twf.engines import environment\n"
        "told = lambda *_: (Path('told').touch(), sys.exit())\n"
        "signal.signal(signal.SIGTERM, told); environment.stop_with_parent()\n"
        "Path('ready').touch(); time.sleep(60)"
    )
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    until((tmp_path / "ready").exists, "the child")
    assert not (tmp_path / "told").exists()
    parent.kill()
    parent.wait()
    until((tmp_path / "told").exists, "the signal")
