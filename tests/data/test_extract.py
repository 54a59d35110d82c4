"""Unpacking archives: what is refused, and that nothing is left or written elsewhere."""

from __future__ import annotations

import io
import os
import random
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", ["one.tar.gz", "one.tgz", "one.zip"])
def test_an_archive_is_unpacked_and_removed_after_use(project, name):
    make = pack if name.endswith(".zip") else tar
    archive = make(f"archives/some/{name}", ("a/b.txt", b"b"), ("c.bin", LARGE))
    before = archive.read_bytes()
    with extracted(archive) as folder:
        assert content(folder) == {"a/b.txt": b"b", "c.bin": LARGE}
        assert folder.parent == Path("archives/.extracted")
    assert not folder.exists() and archive.read_bytes() == before


def test_several_archives_share_a_folder_and_other_files_pass_as_they_are(project):
    archives = [
        tar("archives/some/one.tgz", ("a/one", b"1")),
        pack("archives/some/two.zip", ("a/two", b"2")),
        Path("archives/some/three.mat"),
        Path("archives/some/four.pth"),
    ]
    archives[2].write_bytes(b"3")
    archives[3].write_bytes(b"4")
    with extracted(*archives) as folder:
        found = {"a/one": b"1", "a/two": b"2", "three.mat": b"3", "four.pth": b"4"}
        assert content(folder) == found
    assert archives[2].read_bytes() == b"3", "what is removed is a link to it"


def test_a_file_that_only_looks_like_an_archive_passes_as_it_is(project):
    """PyTorch's files are zip files inside."""
    archive = pack("archives/some/weights.pth", ("a", b"1"))
    with extracted(archive) as folder:
        assert (folder / "weights.pth").read_bytes() == archive.read_bytes()


def test_an_error_in_its_use_removes_it_too(project):
    archive = tar("archives/some/one.tgz", ("a", b"1"))
    with pytest.raises(ValueError, match="the cause"), extracted(archive):
        raise ValueError("the cause")


def test_links_within_are_unpacked(project):
    archive = tar(
        "archives/some/one.tgz",
        ("a/file", b"1"),
        special(tarfile.SYMTYPE, "a/soft", "file"),
        special(tarfile.LNKTYPE, "a/hard", "a/file"),
    )
    with extracted(archive) as folder:
        assert content(folder) == {"a/file": b"1", "a/soft": b"1", "a/hard": b"1"}


ESCAPED = Path("/tmp/escaped-from-an-archive-of-twf-tests")
REFUSED: dict[str, Callable[[], Path]] = {
    "its member ../../x is a path that leads out": lambda: tar("one.tgz", ("../../x", b"!")),
    "its member a/../../x is a path that leads out": lambda: tar("one.tgz", ("a/../../x", b"!")),
    f"its member {ESCAPED} is an absolute path": lambda: tar("one.tgz", (str(ESCAPED), b"!")),
    "its member a/link links to ../../x": lambda: tar(
        "one.tgz", special(tarfile.SYMTYPE, target="../../x")
    ),
    "its member a/link links to /etc/passwd": lambda: tar(
        "one.tgz", special(tarfile.SYMTYPE, target="/etc/passwd")
    ),
    "its member a/link links to ../x": lambda: tar(
        "one.tgz", special(tarfile.LNKTYPE, target="../x")
    ),
    "its member a/link links to /etc/hosts": lambda: tar(
        "one.tgz", special(tarfile.LNKTYPE, target="/etc/hosts")
    ),
    "its member d/e/link links to ../..": lambda: tar(
        "one.tgz", special(tarfile.SYMTYPE, "d/e/link", "../.."), ("d/e/link/x", b"!")
    ),
    "its member a/link is a device": lambda: tar("one.tgz", special(tarfile.CHRTYPE)),
    "its member pipe is a device": lambda: tar("one.tgz", special(tarfile.FIFOTYPE, "pipe")),
    "its member ../x is a path that leads out": lambda: pack("one.zip", ("../x", b"!")),
    "its member ..\\x is a path that leads out": lambda: pack("one.zip", ("..\\x", b"!")),
    "its member /x is an absolute path": lambda: pack("one.zip", ("/x", b"!")),
    "its member a/link is a link or a device": lambda: pack("one.zip", zipped_link("../../x")),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_could_write_elsewhere_is_refused(project, monkeypatch, said):
    ESCAPED.unlink(missing_ok=True)
    with monkeypatch.context() as patch:
        patch.chdir("archives/some")
        name = REFUSED[said]()
    message = refusal("archives/some" / name)
    assert said in message and "fetch it again" in message
    assert not ESCAPED.exists()


def test_a_good_member_before_a_bad_one_is_not_kept(project):
    refusal(tar("archives/some/one.tgz", ("good", LARGE), ("../x", b"!")))


@pytest.mark.parametrize("name", ["one.tar.gz", "one.zip"])
def test_an_archive_cut_anywhere_is_refused(project, name):
    make = pack if name.endswith(".zip") else tar
    archive = make(f"archives/some/{name}", *((f"a/{i}", LARGE[i * 999 :][:999]) for i in range(9)))
    whole = archive.read_bytes()
    for length in [*range(0, len(whole), 97), *range(len(whole) - 30, len(whole))]:
        archive.write_bytes(whole[:length])
        assert "it is damaged or cut short" in refusal(archive), length


@pytest.mark.parametrize("name", ["one.tgz", "one.zip"])
def test_a_changed_byte_is_noticed(project, name):
    make = pack if name.endswith(".zip") else tar
    archive = make(f"archives/some/{name}", ("a", LARGE))
    changed = bytearray(archive.read_bytes())
    changed[len(changed) // 2] ^= 1
    archive.write_bytes(changed)
    assert "it is damaged or cut short" in refusal(archive)


@pytest.mark.parametrize("name", ["one.tgz", "one.zip"])
def test_what_is_no_archive_is_refused(project, name):
    Path(f"archives/some/{name}").write_text("<html>log in</html>")
    assert "it is damaged or cut short" in refusal(Path(f"archives/some/{name}"))


def test_a_missing_archive_is_named(project):
    archive = Path("archives/some/one.tgz")
    assert "`twf data fetch some`" in refusal(archive)
    tar("archives/some/one.tgz", ("a", b"1"))
    assert "no archive archives/some/three.mat" in refusal(archive, archive.with_name("three.mat"))


@pytest.mark.parametrize("name", ["one.tgz", "one.zip"])
def test_a_full_disk_is_a_users_mistake(project, small_disk, name):
    make = pack if name.endswith(".zip") else tar
    archive = make(f"archives/some/{name}", ("a", b"1"), ("b", LARGE), ("c", LARGE))
    full = pytest.raises(UserError, match="No space left on device.*free some space")
    with full as caught, extracted(archive, scratch=small_disk):
        pytest.fail("it was unpacked")
    assert str(archive) in str(caught.value)
    assert [path.suffix for path in small_disk.iterdir()] == [".lock"]


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
    deadline = time.monotonic() + 20
    while not (found := list(Path("archives/.extracted").glob(pattern))):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)
    return found[0]


@pytest.mark.parametrize(
    ("moment", "left"), [("unpacking", "*.partial/half"), ("using", "one.zip.????????/a")]
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
    assert second.stderr is not None
    said = second.stderr.readline()
    assert said == "waiting for another process: it has unpacked archives/some/one.zip\n"
    assert used.exists()
    for started in (process, second):
        started.send_signal(signal.SIGKILL)
        started.communicate()
    with extracted(archive) as folder:
        assert content(folder) == {"a": b"1"}


def test_an_archive_that_may_not_be_read_is_named(project, monkeypatch):
    archive = tar("archives/some/one.tgz", ("a", b"1"))
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read all
    assert "that can be read" in refusal(archive)
