"""What DVC brought is touched where nothing differs; else what does is named, and nothing is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from miniature import ER, FINETUNE, REPORT, TWF, call, change_params, copied, idle, make_pull

from twf import files
from twf.engines import touch

RECORD = files.record_file("demo", ER)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def shared(pretended: Path, prepared) -> Path:
    """A checkout with pretended outputs, pushed to a folder as its remote."""

    def make(folder: Path) -> None:
        copied(pretended, folder.parent)
        remote = str(folder.with_name("remote"))
        call(folder, "dvc", "remote", "add", "--default", "shared", remote)
        call(folder, "dvc", "push", "--quiet", "--with-deps", "report@demo")
        call(folder, "git", "commit", "--quiet", "--all", "--message", "remote")

    return prepared("shared", make)


@pytest.fixture
def clone(shared: Path, tmp_path: Path) -> Path:
    """A clone of it, in which nothing was pulled yet."""
    call(tmp_path, "git", "clone", "--quiet", str(shared), "clone")
    return tmp_path / "clone"


@pytest.fixture
def project(shared: Path, tmp_path: Path) -> Path:
    """A copy of `shared`, whose modification times Snakemake knows nothing of."""
    return copied(shared, tmp_path)


def refused(folder: Path, *words: str) -> str:
    """What `twf` says where it ends with a user's mistake."""
    said = call(folder, "twf", *words, fails=True)
    assert "Traceback" not in said
    return said


def test_a_changed_file_is_named_and_nothing_is_touched(project: Path) -> None:
    (project / RECORD).write_bytes(b"another")
    said = refused(project, "touch", "demo")
    assert "runs-demo: changed outs: results/demo/runs: modified" in said
    assert not idle(project)
    (remedy,) = re.findall("dvc checkout --force --with-deps [^`]+", said)
    call(project, *remedy.split())
    call(project, "twf", "touch", "demo")
    assert idle(project)


def test_conflicts_and_forgotten_stages_are_named(project: Path) -> None:
    lock, whole = project / "dvc.lock", (project / "dvc.lock").read_text()
    lock.write_text(f"<<<<<<< ours\n{whole}=======\n>>>>>>> theirs\n")
    assert "conflicts of git" in refused(project, "touch", "demo")
    lock.write_text("")
    assert "dvc.lock has no report@demo" in refused(project, "touch", "demo")
    lock.write_text(whole)
    dvc = project / "dvc.yaml"
    dvc.write_text(dvc.read_text().replace("  - checkpoints/letters.safetensors\n", ""))
    assert "lacks checkpoints/letters.safetensors" in refused(project, "touch", "demo")


def test_a_file_that_dvc_takes_for_unchanged_by_its_notes_is_read(project: Path) -> None:
    """As after a pull without `verify` of an object that is damaged in the remote."""
    path = project / "data/letters.safetensors"
    (cached,) = (
        p for p in project.glob(".dvc/cache/files/md5/*/*") if p.read_bytes() == path.read_bytes()
    )
    cached.chmod(0o644)
    cached.write_bytes(b"damaged")
    cached.chmod(0o444)
    path.unlink()
    call(project, "dvc", "checkout", "--with-deps", "report@demo")
    assert path.read_bytes() == b"damaged"
    assert "up to date" in call(project, "dvc", "status", "--with-deps", "report@demo")
    said = refused(project, "touch", "demo")
    assert "data@letters: changed outs: data/letters.safetensors: modified" in said
    assert ".dvc/cache/files" in said
    shutil.rmtree(project / ".dvc/cache/files")
    path.unlink()
    make_pull(project)
    assert path.stat().st_size == 1000


def test_changed_parameters_are_named(project: Path) -> None:
    change_params(project, lambda v: v["benchmarks"]["split-digits"].update(batch_size=32))
    said = refused(project, "touch", "demo")
    assert "runs-demo: changed deps: params.yaml: benchmarks: modified" in said


def test_records_that_are_not_the_plans_are_named(project: Path) -> None:
    """DVC is content: they were committed like this."""
    shutil.copy(project / files.record_file("demo", FINETUNE), project / RECORD)
    (project / files.record_file("demo", TWF)).unlink()
    call(project, "dvc", "commit", "--force", "--with-deps", "report@demo")
    said = refused(project, "touch", "demo")
    assert f"run {ER}: stale" in said and f"run {TWF}: to do" in said
    assert f"snakemake --cores all {REPORT}" in said
    assert not idle(project)


def test_a_folder_that_snakemake_works_in_is_not_touched(project: Path) -> None:
    """A lock that was left behind is as good as one that is held."""
    locks = project / ".snakemake/locks"
    locks.mkdir(parents=True, exist_ok=True)
    (locks / "0.input.lock").write_text("data/digits.safetensors\n")
    (locks / "0.output.lock").write_text(f"{REPORT}\n")
    assert "Directory cannot be locked" in refused(project, "touch", "demo")


def test_what_a_clone_lacks_for_a_pull_is_named_with_the_remedy(clone: Path) -> None:
    assert "'dmeo'" in refused(clone, "pull", "dmeo")
    assert "report@paper" in refused(clone, "pull")
    call(clone, "dvc", "remote", "default", "--unset")
    assert "dvc remote add --default" in refused(clone, "pull", "demo")
    assert not (clone / "data").exists()


def test_an_object_that_is_damaged_in_the_remote_is_not_used(
    clone: Path, shared: Path, tmp_path: Path
) -> None:
    """Though nobody has told DVC to verify what the remote sends."""
    remote = Path(shutil.copytree(shared.with_name("remote"), tmp_path / "remote"))
    call(clone, "dvc", "remote", "modify", "shared", "url", str(remote))
    content = (shared / RECORD).read_bytes()
    (kept,) = (path for path in remote.glob("files/md5/*/*") if path.read_bytes() == content)
    kept.chmod(0o644)
    kept.write_bytes(bytes(len(content)))
    assert "dvc pull did not bring all" in refused(clone, "pull", "demo")
    assert not (clone / RECORD).exists()


def test_files_changed_here_are_not_overwritten_by_a_pull(project: Path) -> None:
    (project / RECORD).write_bytes(b"mine")
    assert "unsaved files" in refused(project, "pull", "demo")
    assert (project / RECORD).read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("runs", "missing"),
    [
        (["done", "done"], ["source b: stale"]),
        (["done", "to do"], ["data a: to do", "source b: stale", "run 1: to do"]),
    ],
)
def test_where_all_records_are_there_no_data_need_be(monkeypatch, runs, missing) -> None:
    """As of a study whose records git has."""
    states = {"data": {"a": "to do"}, "sources": {"b": "stale", "c": "done"}}
    states["runs"] = {str(i): {"status": state} for i, state in enumerate(runs)}
    monkeypatch.setattr(touch, "expand", lambda *_: None)
    monkeypatch.setattr(touch.status, "of_plan", lambda *_: states)
    assert touch._not_planned(None, "demo")  # type: ignore[arg-type] == missing
