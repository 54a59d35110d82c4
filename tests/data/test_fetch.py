"""Archives: fetched from servers that fail, kept, and unpacked without harm."""

import contextlib
import hashlib
import http.server
import io
import random
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from twf.data import registry
from twf.data.fetch import extracted, fetch
from twf.errors import UserError

CONTENT = random.Random(0).randbytes(2**20)  # nothing packs it smaller
OTHER = b"<html>log in</html>"
MD5 = hashlib.md5(CONTENT).hexdigest()
FILE = Path("archives/some/file.bin")
NOBODY = "http://127.0.0.1:9/file.bin"


class Handler(http.server.SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, *_: object) -> None:
        self.asked.append(self.path)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server with `CONTENT` as `file.bin`, and `OTHER` as `other.bin`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Handler, "asked", [], raising=False)
    served = tmp_path / "served"
    served.mkdir()
    (served / "file.bin").write_bytes(CONTENT)
    (served / "other.bin").write_bytes(OTHER)
    handler = partial(Handler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def entry(*addresses: str) -> registry.Entry:
    file = registry.File(checksum=f"md5:{MD5}", addresses=list(addresses))
    return registry.entry("resnet50-imagenet").model_copy(update={"files": {"file.bin": file}})


def assert_fetched() -> None:
    """The file is complete, its receipt is there, and nothing else is left."""
    assert FILE.read_bytes() == CONTENT
    assert {path.name for path in FILE.parent.iterdir()} == {"file.bin", "checked.json"}


def test_a_file_is_fetched_once_and_one_put_there_is_checked(server):
    described = entry(f"{server}/file.bin")
    for _ in range(2):
        fetch("some", described)
        assert_fetched()
    assert Handler.asked == ["/file.bin"]
    fetch("some", entry(NOBODY))  # without network
    FILE.write_bytes(OTHER)
    with pytest.raises(UserError, match=rf"{FILE} is not .* move or delete it, then `twf data fet"):
        fetch("some", described)
    assert FILE.read_bytes() == OTHER and Handler.asked == ["/file.bin"], "what was there stays"


@pytest.mark.parametrize("other", ["{}/other.bin", "{}/gone.bin", NOBODY, "file:///nowhere"])
def test_where_one_address_fails_the_next_one_is_asked(server, other):
    fetch("some", entry(other.format(server), f"{server}/file.bin"))
    assert_fetched()


def test_a_wrong_file_names_address_and_checksums_and_is_not_kept(server):
    with pytest.raises(UserError) as caught:
        fetch("some", entry(*(f"{server}/{name}.bin" for name in ("gone", "other"))))
    parts = (str(FILE), "/other.bin", MD5, hashlib.md5(OTHER).hexdigest(), "`twf data fetch some`")
    assert all(part in str(caught.value) for part in parts)
    assert not [path for path in Path("archives").rglob("*") if path.is_file()]


# Unpacking

Members = dict[str | zipfile.ZipInfo, bytes | tarfile.TarInfo]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test is in a project's folder, beside a file `x`; nothing but the archive stays."""
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
            if isinstance(content, bytes):
                info = tarfile.TarInfo(member)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                archive.addfile(content)
    return Path(name)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", ["one.tgz", "one.zip"])
def test_an_archive_is_unpacked_and_removed_after_use_and_a_torn_one_is_named(project, name):
    archive = pack(name, {"a/b.txt": b"b", "c.bin": CONTENT})
    Path("a.mat").write_bytes(b"passed as it is")
    with extracted([archive, Path("a.mat")]) as folder:
        expected = {"a/b.txt": b"b", "c.bin": CONTENT, "a.mat": b"passed as it is"}
        assert content(folder) == expected
    assert not folder.exists() and archive.exists() and Path("a.mat").exists()
    for kept in (0.9, 0):
        archive.write_bytes(archive.read_bytes()[: int(kept * archive.stat().st_size)])
        with pytest.raises(UserError, match=rf"{name} cannot be read"), extracted([archive]):
            pass


def link(kind: bytes, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo("a/link")
    info.type, info.linkname = kind, target
    return info


ZIPPED = zipfile.ZipInfo("link")  # a link to a file `!`
ZIPPED.external_attr = (stat.S_IFLNK | 0o777) << 16

HARMFUL: list[tuple[str, Members]] = [
    *[("one.tgz", {name: b"!"}) for name in ("../x", "a/../../x", "../../x", "/x")],
    *[("one.zip", {name: b"!"}) for name in ("../x", "a/../../x", "..\\x", "/x")],
    ("one.zip", {ZIPPED: b"!"}),
    *[("one.tgz", {"l": link(tarfile.SYMTYPE, to)}) for to in ("../x", "/etc/passwd", "b")],
    ("one.tgz", {"l": link(tarfile.SYMTYPE, "../.."), "a/link/x": b"!"}),
    *[("one.tgz", {"l": link(tarfile.LNKTYPE, to)}) for to in ("../x", "/etc/hosts")],
    *[("one.tgz", {"l": link(kind, "")}) for kind in (tarfile.CHRTYPE, tarfile.FIFOTYPE)],
]


@pytest.mark.parametrize(("name", "members"), HARMFUL)
def test_what_could_write_elsewhere_is_refused_or_stays_within(project, name, members):
    """The fixture sees what lies outside."""
    archive = pack(name, members)
    with contextlib.suppress(UserError), extracted([archive]) as folder:
        assert list(content(folder).values()) == [b"!"] and "l" not in members
        assert not any(path.is_symlink() for path in folder.rglob("*"))
