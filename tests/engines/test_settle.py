"""What DVC brought is settled where nothing differs; else what does is named, nothing touched."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from miniature import call, checkout, make_pull, pretend

from twf import files

REPORT = str(files.report_file("demo"))
RECORD = files.record_file("demo", "split-digits.er.16.s0")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with pretended outputs, pushed to a folder as its remote."""
    folder = tmp_path_factory.mktemp("sharing") / "project"
    checkout(folder)
    pretend(folder)
    call(folder, "dvc", "remote", "add", "--default", "shared", str(folder.with_name("remote")))
    call(folder, "dvc", "remote", "modify", "shared", "verify", "true")
    call(folder, "dvc", "push", "--quiet", "--with-deps", "report@demo")
    call(folder, "git", "commit", "--quiet", "--all", "--message", "remote")
    return folder


@pytest.fixture
def clone(shared: Path, tmp_path: Path) -> Path:
    """A clone of it, in which nothing was pulled yet."""
    call(tmp_path, "git", "clone", "--quiet", str(shared), "clone")
    return tmp_path / "clone"


@pytest.fixture
def project(shared: Path, tmp_path: Path) -> Path:
    """A copy of `shared`, whose modification times Snakemake knows nothing of."""
    folder = tmp_path / "project"
    shutil.copytree(shared, folder)
    return folder


def refused(folder: Path, *words: str) -> str:
    """What `twf` says where it ends with a user's mistake."""
    done = subprocess.run(
        [sys.executable, "-m", "twf", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


def unsettled(folder: Path) -> bool:
    """Whether Snakemake still wants to make the report."""
    return "Nothing to be done" not in call(folder, "snakemake", REPORT, "--dry-run")


def test_make_pull_brings_a_study_and_settles_it(clone: Path) -> None:
    assert "neither engine has anything to do" in make_pull(clone)
    assert not unsettled(clone)
    assert "up to date" in call(clone, "dvc", "status", "--with-deps", "report@demo")
    assert "neither engine has anything to do" in make_pull(clone)  # again


def test_a_changed_file_is_named_and_nothing_is_settled(project: Path) -> None:
    (project / RECORD).write_bytes(b"another")
    said = refused(project, "settle", "demo")
    assert "runs-demo: changed outs: results/demo/runs: modified" in said
    assert "dvc checkout --force --with-deps report@demo" in said
    assert unsettled(project)
    call(project, "dvc", "checkout", "--force", "--with-deps", "report@demo")
    call(project, "twf", "settle", "demo")
    assert not unsettled(project)


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
    said = refused(project, "settle", "demo")
    assert "data@letters: changed outs: data/letters.safetensors: modified" in said
    assert "delete .dvc/cache/files, and pull again" in said
    shutil.rmtree(project / ".dvc/cache/files")
    path.unlink()
    make_pull(project)
    assert path.stat().st_size == 1000


def test_changed_parameters_are_named(project: Path) -> None:
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(text.replace("batch_size: 64", "batch_size: 32"))
    said = refused(project, "settle", "demo")
    assert "runs-demo: changed deps: params.yaml: benchmarks: modified" in said
    assert "undo your changes of params.yaml" in said


def test_records_that_are_not_the_plans_are_named(project: Path) -> None:
    """DVC is content: they were committed like this."""
    other = files.record_file("demo", "split-digits.finetune.s0")
    shutil.copy(project / other, project / RECORD)
    (project / files.record_file("demo", "split-digits.twf.16.s0")).unlink()
    call(project, "dvc", "commit", "--force", "--with-deps", "report@demo")
    said = refused(project, "settle", "demo")
    assert "run split-digits.er.16.s0: stale" in said
    assert "run split-digits.twf.16.s0: to do" in said
    assert f"snakemake --cores all {REPORT}" in said
    assert unsettled(project)


def test_a_folder_that_snakemake_works_in_is_not_settled(project: Path) -> None:
    """A lock that was left behind is as good as one that is held."""
    locks = project / ".snakemake/locks"
    locks.mkdir(parents=True, exist_ok=True)
    (locks / "0.input.lock").write_text("data/digits.safetensors\n")
    (locks / "0.output.lock").write_text(f"{REPORT}\n")
    said = refused(project, "settle", "demo")
    assert "Directory cannot be locked" in said
    assert "Snakemake could not note that study demo is up to date" in said


def test_what_a_clone_lacks_for_a_pull_is_named_with_the_remedy(clone: Path) -> None:
    assert "there is demo, paper" in refused(clone, "pull", "dmeo")
    said = refused(clone, "pull")
    assert "dvc.lock has no report@paper" in said
    call(clone, "dvc", "remote", "modify", "shared", "verify", "false")
    assert "dvc remote modify shared verify true" in refused(clone, "pull", "demo")
    call(clone, "dvc", "remote", "default", "--unset")
    assert "dvc remote add --default NAME WHERE" in refused(clone, "pull", "demo")
    assert not (clone / "data").exists()


def test_an_object_that_the_remote_lacks_is_no_success(clone: Path, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    call(clone, "dvc", "remote", "modify", "shared", "url", nowhere)
    said = refused(clone, "pull", "demo")
    assert "dvc pull did not bring all of report@demo" in said
    assert "docs/remotes.md" in said


def test_files_changed_here_are_not_overwritten_by_a_pull(project: Path) -> None:
    (project / RECORD).write_bytes(b"mine")
    assert "unsaved files" in refused(project, "pull", "demo")
    assert (project / RECORD).read_bytes() == b"mine"
