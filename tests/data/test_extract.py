"""Unpacking archives: nothing is written elsewhere, nothing is left."""

import contextlib
import io
import random
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from twf.data.fetch import extracted
from twf.data.images import BrokenFileError
from twf.errors import UserError

LARGE = random.Random(0).randbytes(2**20)  # nothing packs it smaller
Members = dict[str, bytes | tarfile.TarInfo]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tests are in a project's folder, beside a file `x`; nothing but the archive stays."""
    (tmp_path / "project/archives").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    (tmp_path / "x").write_text("outside")
    yield
    assert (tmp_path / "x").read_text() == "outside"
    assert {path.name for path in tmp_path.iterdir()} <= {"project", "x"}
    assert {path.name for path in Path().iterdir()} <= {"archives", "one.tgz", "one.zip", "a.mat"}
    assert not list(Path("archives").iterdir())


def pack(name: str, members: Members) -> Path:
    """An archive of the kind that its name says."""
    if name.endswith(".zip"):
        with zipfile.ZipFile(name, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return Path(name)
    with tarfile.open(name, "w:gz") as archive:
        for member, content in members.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(member)
            if isinstance(content, bytes):
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return Path(name)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["one.tgz", "one.zip"])
def test_an_archive_is_unpacked_and_removed_after_use(name):
    archive = pack(name, {"a/b.txt": b"b", "c.bin": LARGE})
    Path("a.mat").write_bytes(b"passed as it is")
    with extracted([archive, Path("a.mat")]) as folder:
        expected = {"a/b.txt": b"b", "c.bin": LARGE, "a.mat": b"passed as it is"}
        assert content(folder) == expected
    assert not folder.exists() and archive.exists() and Path("a.mat").exists()


def link(kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo("a/link")
    info.type, info.linkname = kind, target
    return info


HARMFUL: list[tuple[str, Members]] = [
    *[("one.tgz", {name: b"!"}) for name in ("../x", "a/../../x", "../../x", "/x")],
    *[("one.zip", {name: b"!"}) for name in ("../x", "a/../../x", "..\\x", "/x")],
    *[("one.tgz", {"l": link(tarfile.SYMTYPE, to)}) for to in ("../x", "/etc/passwd", "b")],
    ("one.tgz", {"l": link(tarfile.SYMTYPE, "../.."), "a/link/x": b"!"}),
    *[("one.tgz", {"l": link(tarfile.LNKTYPE, to)}) for to in ("../x", "/etc/hosts")],
    *[("one.tgz", {"l": link(kind, "")}) for kind in (tarfile.CHRTYPE, tarfile.FIFOTYPE)],
]


@pytest.mark.parametrize(("name", "members"), HARMFUL)
def test_what_could_write_elsewhere_is_refused_or_stays_within(name, members):
    """The fixture sees what lies outside."""
    archive = pack(name, members)
    with contextlib.suppress(BrokenFileError), extracted([archive]) as folder:
        assert list(content(folder).values()) == [b"!"] and "l" not in members


def test_a_link_in_a_zip_is_no_link():
    info = zipfile.ZipInfo("link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile("one.zip", "w") as archive:
        archive.writestr(info, "../../x")
    with extracted([Path("one.zip")]) as folder:
        assert not (folder / "link").is_symlink()


@pytest.mark.parametrize("name", ["one.tgz", "one.zip"])
@pytest.mark.parametrize("kept", [0, 0.9])
def test_a_torn_archive_is_named(name, kept):
    archive = pack(name, {"a": LARGE, "b": LARGE})
    archive.write_bytes(archive.read_bytes()[: int(kept * archive.stat().st_size)])
    with pytest.raises(UserError, match=rf"{name} cannot be read"), extracted([archive]):
        pass
