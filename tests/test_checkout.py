"""By which commit a record says that it was made. tests/engines has other folders' code."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import twf
from twf.checkout import COMMIT, commit
from twf.errors import UserError


@pytest.fixture(params=[".", "project"])
def checkout(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed checkout, or a folder of another's, that the package seems to lie in."""
    folder: Path = tmp_path / request.param
    package = folder / "src/twf"
    package.mkdir(parents=True)
    for path in ("src/twf/__init__.py", "src/twf/loss.py", "params.yaml"):
        (folder / path).write_text("a: 1\n")
    (folder / ".gitignore").write_text("/.venv/\n/results/\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    git(tmp_path, *author, "commit", "--quiet", "--message", "x")
    monkeypatch.setattr(twf, "__file__", str(package / "__init__.py"))
    monkeypatch.delenv(COMMIT, raising=False)
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("path", "mark"),
    [
        ("results/a.parquet", ""),
        ("README.md", ""),
        ("src/twf/loss.py", "+"),
        ("src/twf/study/mine.py", "+"),
        ("params.yaml", "+"),
    ],
)
def test_a_changed_or_new_file_that_can_change_a_number_is_marked(checkout, path, mark):
    (checkout / path).parent.mkdir(parents=True, exist_ok=True)
    (checkout / path).write_text("a: 2\n")
    assert commit() == git(checkout, "rev-parse", "HEAD") + mark


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"])
def test_a_variable_of_git_that_names_another_repository_decides_nothing(
    checkout, tmp_path_factory, monkeypatch, variable
):
    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv(variable, str(tmp_path_factory.mktemp("other") / ".git"))
    assert commit() == head


def test_a_wheel_in_anothers_checkout_has_no_commit_and_a_copy_without_git_the_one_it_is_told(
    checkout, tmp_path, monkeypatch
):
    installed = checkout / ".venv/lib/twf/__init__.py"
    installed.parent.mkdir(parents=True)
    installed.write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(twf, "__file__", str(installed))
        assert commit() is None
    shutil.rmtree(tmp_path / ".git")
    (tmp_path / ".git").write_text("gitdir: /nowhere\n")  # a worktree that was copied elsewhere
    if checkout == tmp_path:
        with pytest.raises(UserError, match=r"git does not read .*: fatal: .*TWF_COMMIT"):
            commit()
    (tmp_path / ".git").unlink()
    assert commit() is None
    monkeypatch.setenv(COMMIT, "0123")
    assert commit() == "0123"
