"""A study's outputs through real servers, S3 and SSH: nothing is lost, nothing damaged is used."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from miniature import call, copied, idle
from remote_servers import Remote

from twf import files

STAGES = [
    *("data@digits", "data@letters", "data@textures", "pretrain@letters", "pretrain@textures"),
    *("runs@demo", "report@demo"),
]
PUSH = ("dvc", "push", *STAGES)
PULL = ("dvc", "pull", *STAGES)

pytestmark = pytest.mark.service


def give_keys(folder: Path, remote: Remote, right: bool = True) -> None:
    """What `dvc remote modify --local` writes, and git does not see."""
    options = [f"    {option} = {value}\n" for option, value in remote.keys[right].items()]
    (folder / ".dvc/config.local").write_text("['remote \"shared\"']\n" + "".join(options))
    assert call(folder, "git", "status", "--porcelain") == ""


def outputs(folder: Path) -> dict[str, bytes]:
    """The content of each of a study's files."""
    patterns = ("data/*", "checkpoints/*", "results/demo/**/*")
    paths = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    own = [path for path in paths if not path.name.startswith(".")]  # not Snakemake's notes
    return {str(path.relative_to(folder)): path.read_bytes() for path in own}


def test_a_clone_after_pull_has_everything_and_a_wrong_key_or_a_damaged_object_loses_nothing(
    shared: Path, remote: Remote, tmp_path: Path
) -> None:
    """Set up, and mended, as the documentation has it."""
    project, clone = copied(shared, tmp_path), tmp_path / "clone"
    call(project, "dvc", "remote", "add", "--default", "shared", remote.url)
    for option, value in (remote.options | {"verify": "true"}).items():
        call(project, "dvc", "remote", "modify", "shared", option, value)
    call(project, "git", "commit", "--quiet", "--all", "--message", "remote")
    give_keys(project, remote, right=False)
    assert remote.refusal in call(project, *PUSH, fails=True)
    assert not remote.storage.find(remote.folder)
    give_keys(project, remote)
    call(project, *PUSH)
    assert "Everything is up to date" in call(project, *PUSH)

    call(project, "git", "clone", "--quiet", str(project), str(clone))
    give_keys(clone, remote, right=False)
    said = call(clone, *PULL, fails=True)
    assert remote.refusal in said
    assert outputs(clone) == {}
    give_keys(clone, remote)

    lock = yaml.safe_load((project / "dvc.lock").read_text())
    made = {out["path"]: out["md5"] for stage in lock["stages"].values() for out in stage["outs"]}
    digits = str(files.data_file("digits"))
    stored = f"{remote.folder}/files/md5/{made[digits][:2]}/{made[digits][2:]}"
    size = remote.storage.size(stored)
    remote.storage.rm(stored)  # which is read-only
    remote.storage.pipe(stored, b"x" * size)
    said = call(clone, *PULL, fails=True)
    assert "Checkout failed" in said and digits in said
    assert not (clone / digits).exists()
    remote.storage.rm(stored)
    assert "1 file pushed" in call(project, *PUSH)

    call(clone, *PULL)
    assert outputs(clone) == outputs(project)
    assert idle(clone) and "to do" not in call(clone, "dvc", "repro", "report@demo")
    assert outputs(clone) == outputs(project)
