"""Unpacking archives: what is refused, and that nothing is left or written elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import signal
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import until

from twf.data.extract import extracted
from twf.errors import UserError

LARGE = random.Random(0).randbytes(2**20)  # nothing packs it smaller


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder with `archives/some`; the test is in it. No test leaves more there."""
    folder = tmp_path / "project"
    (folder / "archives" / "some").mkdir(parents=True)
    monkeypatch.chdir(folder)
    (tmp_path / "x").write_text("outside")
    yield folder
    assert (tmp_path / "x").read_text() == "outside"
    assert {path.name for path in tmp_path.iterdir()} <= {"project", "x", "small-disk"}
    assert {path.name for path in folder.iterdir()} == {"archives"}
    assert {path.name for path in (folder / "archives").iterdir()} <= {"some", ".extracted"}
    left = Path("archives/.extracted")
    assert {path.suffix for path in left.glob("*")} <= {".lock"}, "locks stay, and nothing else"


def tar(path: str, *members: tuple[str, bytes] | tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, content = member
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return Path(path)


def pack(path: str, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return Path(path)


def special(kind: bytes, name: str = "a/link", target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zipped_link(target: str) -> tuple[zipfile.ZipInfo, bytes]:
    info = zipfile.ZipInfo("a/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target.encode()


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refusal(*archives: Path) -> str:
    """The message of an extraction that fails; the fixture sees that nothing is left."""
    with pytest.raises(UserError) as caught, extracted(*archives):
        pytest.fail("it was unpacked")
    assert any(str(archive) in str(caught.value) for archive in archives)
    return str(caught.value)


NAMES = ["one.tar.gz", "one.tgz", "one.zip"]


def make(name: str, *members: tuple[str, bytes]) -> Path:
    """An archive of the kind that its name says."""
    return (pack if name.endswith(".zip") else tar)(f"archives/some/{name}", *members)


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_is_unpacked_and_removed_after_use(project, name):
    archive = make(name, ("a/b.txt", b"b"), ("c.bin", LARGE))
    before = archive.read_bytes()
    with contextlib.suppress(KeyError), extracted(archive) as folder:
        assert content(folder) == {"a/b.txt": b"b", "c.bin": LARGE}
        assert folder.parent == Path("archives/.extracted")
        raise KeyError("an error in its use")
    assert not folder.exists() and archive.read_bytes() == before


def test_several_archives_share_a_folder_and_other_files_pass_as_they_are(project):
    """PyTorch's files are zip files inside, and are not unpacked."""
    weights = pack("archives/some/three.pth", ("a", b"3"))
    archives = [make("one.tgz", ("a/one", b"1")), make("two.zip", ("a/two", b"2")), weights]
    before = weights.read_bytes()
    with extracted(*archives) as folder:
        assert content(folder) == {"a/one": b"1", "a/two": b"2", "three.pth": before}
    assert weights.read_bytes() == before, "what is removed is a link to it"


def test_links_within_are_unpacked(project):
    archive = tar(
        "archives/some/one.tgz",
        ("a/file", b"1"),
        special(tarfile.SYMTYPE, "a/soft", "file"),
        special(tarfile.LNKTYPE, "a/hard", "a/file"),
    )
    with extracted(archive) as folder:
        assert content(folder) == {"a/file": b"1", "a/soft": b"1", "a/hard": b"1"}


ESCAPED = "/tmp/escaped-from-an-archive-of-twf-tests"
REFUSED: list[tuple[str, Callable[..., Path], tuple[Any, ...]]] = [  # what is named, its archive
    ("../../x", tar, (("../../x", b"!"),)),
    ("a/../../x", tar, (("a/../../x", b"!"),)),
    (ESCAPED, tar, ((ESCAPED, b"!"),)),
    ("a/link", tar, (special(tarfile.SYMTYPE, target="../../x"),)),
    ("a/link", tar, (special(tarfile.SYMTYPE, target="/etc/passwd"),)),
    ("a/link", tar, (special(tarfile.LNKTYPE, target="../x"),)),
    ("a/link", tar, (special(tarfile.LNKTYPE, target="/etc/hosts"),)),
    ("d/e/link", tar, (special(tarfile.SYMTYPE, "d/e/link", "../.."), ("d/e/link/x", b"!"))),
    ("a/link", tar, (special(tarfile.CHRTYPE),)),
    ("pipe", tar, (special(tarfile.FIFOTYPE, "pipe"),)),
    ("../x", tar, (("good", LARGE), ("../x", b"!"))),
    ("../x", pack, (("../x", b"!"),)),
    ("..\\x", pack, (("..\\x", b"!"),)),
    ("/x", pack, (("/x", b"!"),)),
    ("a/link", pack, (zipped_link("../../x"),)),
]


@pytest.mark.parametrize(("member", "write", "members"), REFUSED)
def test_what_could_write_elsewhere_is_refused(project, member, write, members):
    Path(ESCAPED).unlink(missing_ok=True)
    archive = write(f"archives/some/one.{'zip' if write is pack else 'tgz'}", *members)
    assert f"its member {member} " in refusal(archive)
    assert not Path(ESCAPED).exists()


def changed(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


@pytest.mark.parametrize("name", NAMES[1:])
def test_an_archive_cut_anywhere_or_changed_is_refused(project, name):
    archive = make(name, *((f"a/{i}", LARGE[i * 999 :][:999]) for i in range(9)))
    whole = archive.read_bytes()
    lengths = [*range(0, len(whole), 97), *range(len(whole) - 30, len(whole))]
    broken = [whole[:length] for length in lengths]
    broken += [changed(whole, len(whole) // 2), b"<html>log in</html>"]
    for each in broken:
        archive.write_bytes(each)
        assert "damaged" in refusal(archive), len(each)


def test_a_missing_archive_is_named(project):
    archive = Path("archives/some/one.tgz")
    assert "`twf data fetch some`" in refusal(archive)
    make("one.tgz", ("a", b"1"))
    assert "archives/some/three.mat" in refusal(archive, archive.with_name("three.mat"))


def test_an_archive_that_may_not_be_read_is_named(project, monkeypatch):
    archive = make("one.tgz", ("a", b"1"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read all
    assert "read" in refusal(archive)


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_full_disk_is_a_users_mistake(project, small_disk, name):
    archive = make(name, ("a", b"1"), ("b", LARGE), ("c", LARGE))
    Path("archives/.extracted").symlink_to(small_disk)
    assert re.search("No space left on device.*free some space", refusal(archive))
    assert not list(small_disk.iterdir())


KILLED = """
import sys, time
from pathlib import Path
from twf.data import extract
if sys.argv[1] == "unpacking":
    extract._extract_zip = lambda archive, folder: ((folder / "half").touch(), time.sleep(60))
with extract.extracted(Path(sys.argv[2])):
    time.sleep(60)
"""


def start(moment: str, archive: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", KILLED, moment, str(archive)]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def wait_for(pattern: str) -> Path:
    return until(lambda: next(Path("archives/.extracted").glob(pattern), None), pattern)


@pytest.mark.parametrize(
    ("moment", "left"), [("unpacking", "*/half"), ("using", "one.zip.????????/a")]
)
@pytest.mark.parametrize("following", ["one.zip", "two.tgz"])
def test_what_a_killed_process_left_is_removed_by_the_next(project, moment, left, following):
    """Whichever archive that one unpacks."""
    archive = pack("archives/some/one.zip", ("a", b"1"))
    tar("archives/some/two.tgz", ("a", b"1"))
    process = start(moment, archive)
    wait_for(left)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(Path("archives/.extracted").glob(left))
    with extracted(Path("archives/some") / following) as folder:
        assert content(folder) == {"a": b"1"}
        assert len([p for p in folder.parent.iterdir() if p.is_dir()]) == 1


def test_what_a_living_process_uses_is_left_to_it(project):
    archive = pack("archives/some/one.zip", ("a", b"1"))
    process = start("using", archive)
    used = wait_for("one.zip.????????/a")
    with extracted(tar("archives/some/two.tgz", ("b", b"2"))):
        assert used.exists()
    second = start("using", archive)
    assert "archives/some/one.zip" in second.stderr.readline(), "it says what it waits for"
    assert used.exists()
    for started in (process, second):
        started.send_signal(signal.SIGKILL)
        started.communicate()
    with extracted(archive) as folder:
        assert content(folder) == {"a": b"1"}
