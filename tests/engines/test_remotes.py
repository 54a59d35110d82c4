"""A study's outputs through real servers, S3 and SSH: nothing is lost, nothing damaged is used."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import remote_servers as servers
import yaml
from miniature import SIZE, call, copied, idle, make_pull
from processes import ended, start

from twf import files

STAGES = [
    *("data@digits", "data@letters", "data@textures", "pretrain@letters", "pretrain@textures"),
    *("runs@demo", "report@demo"),
]
PUSH = ("dvc", "push", *STAGES)
BIG = files.data_file("digits")
CUT = 2 * 2**20  # bytes that pass before a transfer is cut
TIMEOUT = 60

Remote = servers.S3 | servers.Ssh

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def s3_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with servers.s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The server's port, and the folder of the keys."""
    keys = tmp_path_factory.mktemp("ssh")
    with servers.ssh_server(keys) as port:
        yield port, keys


MISSING = {
    "s3": servers.WEED is None or find_spec("dvc_s3") is None,
    "ssh": servers.SSHD is None or find_spec("dvc_ssh") is None,
}


@pytest.fixture(params=["s3", "ssh"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """An empty remote on a server."""
    if MISSING[request.param]:
        pytest.skip(f"no server here, or no dvc-{request.param}")
    made: Remote
    if request.param == "s3":
        made = servers.S3(request.getfixturevalue("s3_port"), tmp_path.name)
    else:
        made = servers.Ssh(*request.getfixturevalue("ssh"), tmp_path / "remote")
    yield made
    made.line.close()


@pytest.fixture
def project(shared: Path, remote: Remote, tmp_path: Path) -> Path:
    """A copy of it with a default remote, set up as the documentation has it."""
    folder = copied(shared, tmp_path)
    call(folder, "dvc", "remote", "add", "--default", "shared", remote.url)
    for option, value in remote.options.items():
        call(folder, "dvc", "remote", "modify", "shared", option, value)
    call(folder, "git", "commit", "--quiet", "--all", "--message", "remote")
    give_keys(folder, remote)
    return folder


def give_keys(folder: Path, remote: Remote, right: bool = True) -> None:
    """What `dvc remote modify --local` writes, and git does not see."""
    options = [f"    {option} = {value}\n" for option, value in remote.keys(right).items()]
    (folder / ".dvc/config.local").write_text("['remote \"shared\"']\n" + "".join(options))
    assert call(folder, "git", "status", "--porcelain") == ""


def clone_of(project: Path, name: str, remote: Remote) -> Path:
    """A fresh clone with keys, in which nothing was pulled yet."""
    folder = project.with_name(name)
    call(project, "git", "clone", "--quiet", str(project), str(folder))
    give_keys(folder, remote)
    return folder


def outputs(folder: Path) -> dict[str, bytes]:
    """The content of each of a study's files."""
    patterns = ("data/*", "checkpoints/*", "results/demo/**/*")
    paths = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    own = [path for path in paths if not path.name.startswith(".")]  # not Snakemake's notes
    return {str(path.relative_to(folder)): path.read_bytes() for path in own}


def object_of(content: bytes, remote: Remote) -> str:
    """The name of the object in the remote that has this content."""
    (name,) = (
        name
        for name, size in remote.objects().items()
        if size == len(content) and remote.read(name) == content
    )
    return name


def cut(folder: Path, remote: Remote, *words: str) -> None:
    """Start a transfer, let the line stall in its middle, and kill it."""
    remote.line.stall(CUT)
    transfer = start(folder, *words)
    try:
        assert remote.line.stalled.wait(TIMEOUT)
        assert transfer.poll() is None
    finally:
        os.killpg(transfer.pid, signal.SIGKILL)
        ended(transfer)
        remote.line.stall(None)


def test_a_clone_after_make_pull_has_everything_and_nothing_to_do(
    project: Path, remote: Remote
) -> None:
    """Also where transfers were cut in the middle before: the next completes them."""
    cut(project, remote, *PUSH)
    assert SIZE not in remote.objects().values()  # no torso under the object's name
    call(project, *PUSH)
    assert SIZE in remote.objects().values()
    assert "Everything is up to date" in call(project, *PUSH)

    clone = clone_of(project, "clone", remote)
    assert outputs(clone) == {}
    cut(clone, remote, "twf", "pull", "demo")
    assert not (clone / BIG).exists()
    said = make_pull(clone)
    assert outputs(clone) == outputs(project)
    assert idle(clone)
    assert "to do" not in call(clone, "dvc", "repro", "report@demo")
    assert outputs(clone) == outputs(project)
    assert not [key for key in remote.keys(right=True).values() if key in said]


def test_a_wrong_key_is_refused_and_loses_nothing(project: Path, remote: Remote) -> None:
    give_keys(project, remote, right=False)
    refusal = {"s3": "403", "ssh": "Permission denied"}[remote.name]
    assert refusal in call(project, *PUSH, fails=True)
    assert remote.objects() == {}
    give_keys(project, remote)
    call(project, *PUSH)
    pushed = remote.objects()

    clone = clone_of(project, "clone", remote)
    give_keys(clone, remote, right=False)
    said = make_pull(clone, fails=True)
    assert refusal in said and "docs/remotes.md" in said and "Traceback" not in said
    assert not [key for key in remote.keys(right=False).values() if key in said]
    assert outputs(clone) == {}
    assert remote.objects() == pushed
    give_keys(clone, remote)
    call(clone, "dvc", "pull", *STAGES)
    assert outputs(clone) == outputs(project)


def test_a_damaged_object_is_not_used_and_can_be_mended(project: Path, remote: Remote) -> None:
    """A file, and a record among those of a folder; mended as the documentation has it."""
    call(project, *PUSH)
    record = next((project / "results/demo/runs").iterdir()).relative_to(project)
    damaged = [BIG, record]
    names = [object_of((project / path).read_bytes(), remote) for path in damaged]
    for name in names:
        remote.write(name, b"x" * remote.objects()[name])

    clone = clone_of(project, "clone", remote)
    said = make_pull(clone, fails=True)
    assert "Checkout failed" in said and str(BIG) in said and str(record.parent) in said
    assert "docs/remotes.md" in said
    assert all(not (clone / path).exists() for path in damaged)

    for name in names:
        remote.delete(name)
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    (md5,) = (
        out["md5"]
        for out in lock["stages"]["runs@demo"]["outs"]
        if out["path"] == str(record.parent)
    )
    remote.delete(f"files/md5/{md5[:2]}/{md5[2:]}")  # or DVC would take its files to be there
    assert "3 files pushed" in call(project, *PUSH)
    make_pull(clone)
    assert outputs(clone) == outputs(project)


def test_two_clones_that_push_at_once_lose_nothing(project: Path, remote: Remote) -> None:
    """Both have the big file, and each has a table of its own."""
    other = project.with_name("other")
    shutil.copytree(project, other)
    table = files.table_file("demo", "main.split-digits", "md")
    (other / table).write_text("another")
    call(other, "dvc", "commit", "--force", "report@demo")
    call(other, "git", "commit", "--quiet", "--all", "--message", "another")

    pushes = [start(folder, *PUSH) for folder in (project, other)]
    assert [ended(push)[0] for push in pushes] == [0, 0]
    assert list(remote.objects().values()).count(SIZE) == 1
    for folder in (project, other):
        clone = clone_of(folder, f"{folder.name}-clone", remote)
        call(clone, "dvc", "pull", *STAGES)
        assert outputs(clone) == outputs(folder)
