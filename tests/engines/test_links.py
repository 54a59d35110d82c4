"""Folders of outputs as links to another disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from miniature import REPORT, call, idle


@pytest.mark.slow
def test_both_engines_work_with_links_to_another_disk_once_dvc_is_told(
    project: Path, tmp_path: Path
) -> None:
    for name in ("data", "checkpoints", "results/demo"):
        elsewhere = tmp_path / "disk" / name
        elsewhere.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(project / name, elsewhere)
        (project / name).symlink_to(elsewhere)
    (project / "dvc.lock").unlink()  # DVC is to keep all of it anew
    assert idle(project)
    refused = call(project, "dvc", "repro", "report@demo", fails=True)
    assert "`dvc config --local core.no_scm true`" in refused
    call(project, "dvc", "config", "--local", "core.no_scm", "true")
    call(project, "dvc", "repro", "report@demo")
    assert idle(project) and (tmp_path / "disk" / REPORT).exists()
