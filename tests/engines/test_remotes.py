"""A study's outputs through real servers, S3 and SSH: nothing is lost, nothing damaged is used."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import remote_servers as servers
import yaml
from miniature import call, copied, idle

from twf import files

STAGES = [
    *("data@digits", "data@letters", "data@textures", "pretrain@letters", "pretrain@textures"),
    *("runs@demo", "report@demo"),
]
PUSH = ("dvc", "push", *STAGES)
PULL = ("twf", "pull", "demo")
REFUSALS = {"s3": "403", "ssh": "Permission denied"}  # of a wrong key

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
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    """An empty remote on a server."""
    if MISSING[request.param]:
        pytest.skip(f"no server here, or no dvc-{request.param}")
    if request.param == "s3":
        return servers.S3(request.getfixturevalue("s3_port"), tmp_path.name)
    return servers.Ssh(*request.getfixturevalue("ssh"), tmp_path / "remote")


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


def clone_of(project: Path, remote: Remote, right: bool = True) -> Path:
    """A fresh clone with keys, in which nothing was pulled yet."""
    folder = project.with_name("clone")
    call(project, "git", "clone", "--quiet", str(project), str(folder))
    give_keys(folder, remote, right)
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


def test_a_clone_after_pull_has_everything_and_a_wrong_key_loses_nothing(
    project: Path, remote: Remote
) -> None:
    refusal = REFUSALS[remote.name]
    give_keys(project, remote, right=False)
    assert refusal in call(project, *PUSH, fails=True)
    assert remote.objects() == {}
    give_keys(project, remote)
    call(project, *PUSH)
    pushed = remote.objects()
    assert "Everything is up to date" in call(project, *PUSH)

    clone = clone_of(project, remote, right=False)
    said = call(clone, *PULL, fails=True)
    assert refusal in said and "docs/remotes.md" in said and "Traceback" not in said
    assert outputs(clone) == {} and remote.objects() == pushed
    give_keys(clone, remote)
    said += call(clone, *PULL)
    assert outputs(clone) == outputs(project)
    assert idle(clone)
    assert "to do" not in call(clone, "dvc", "repro", "report@demo")
    assert outputs(clone) == outputs(project)
    assert not [
        key for right in (True, False) for key in remote.keys(right).values() if key in said
    ]


def test_a_damaged_object_is_not_used_and_can_be_mended(project: Path, remote: Remote) -> None:
    """A file, and a record among those of a folder; mended as the documentation has it."""
    call(project, *PUSH)
    record = next((project / "results/demo/runs").iterdir()).relative_to(project)
    damaged = [files.data_file("digits"), record]
    names = [object_of((project / path).read_bytes(), remote) for path in damaged]
    for name in names:
        remote.write(name, b"x" * remote.objects()[name])

    clone = clone_of(project, remote)
    said = call(clone, *PULL, fails=True)
    assert "Checkout failed" in said and str(damaged[0]) in said and str(record.parent) in said
    assert "docs/remotes.md" in said
    assert all(not (clone / path).exists() for path in damaged)

    lock = yaml.safe_load((project / "dvc.lock").read_text())
    kept = {out["path"]: out["md5"] for out in lock["stages"]["runs@demo"]["outs"]}
    md5 = kept[str(record.parent)]  # or DVC would take its files to be there
    for name in (*names, f"files/md5/{md5[:2]}/{md5[2:]}"):
        remote.delete(name)
    assert "3 files pushed" in call(project, *PUSH)
    call(clone, *PULL)
    assert outputs(clone) == outputs(project)
