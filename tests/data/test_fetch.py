"""Fetching archives: every way in which a server, a disk or a process fails on the way."""

from __future__ import annotations

import email.utils
import hashlib
import http.server
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from processes import until
from project import PROJECT

from twf.data import download, registry
from twf.data.fetch import fetch, remaining, status, unreachable
from twf.errors import UserError

CONTENT = random.Random(0).randbytes(3 * 2**20 + 7)
SIZE = len(CONTENT)
OTHER = random.Random(1).randbytes(SIZE)
HALF = SIZE // 2
PLACE = Path("archives/some/file.bin")


class Server(http.server.ThreadingHTTPServer):
    """Gives `content`, by Range too, save where `faults` has another answer to the next request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {"/file.bin": CONTENT}
        self.faults: list[Callable[[Handler], None] | None] = []
        self.requests: list[tuple[str, str | None]] = []  # path, Range
        self.sent: list[int] = []  # bytes of each body

    def address(self, path: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"

    def handle_error(self, *_: object) -> None:
        """A client that is gone before the end of its answer is part of the tests."""

    @property
    def ranges(self) -> list[str | None]:
        return [asked for _, asked in self.requests]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers["Range"]))
        fault = self.server.faults.pop(0) if self.server.faults else None
        (fault or Handler.give)(self)

    def give(self, ignore_range: bool = False, limit: int | None = None) -> None:
        """Answer rightly, or break off after `limit` bytes of the body."""
        content = self.server.content.get(self.path)
        if content is None:
            self.answer(404)
            return
        start, asked = 0, self.headers["Range"]
        if asked and not ignore_range:
            start = int(asked.removeprefix("bytes=").split("-")[0])
            if start >= len(content):
                self.answer(416, {"Content-Range": f"bytes */{len(content)}"})
                return
        headers = {"Content-Length": str(len(content) - start)}
        if start or asked == "bytes=0-0":
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.answer(206 if "Content-Range" in headers else 200, headers)
        self.body(content[start:][:limit])

    def answer(self, code: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()

    def body(self, content: bytes) -> None:
        self.server.sent.append(len(content))
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def cut(after: int, ignore_range: bool = False) -> Callable[[Handler], None]:
    return lambda handler: handler.give(ignore_range, limit=after)


def refused(code: int, headers: dict[str, str] | None = None) -> Callable[[Handler], None]:
    return lambda handler: handler.answer(code, headers)


def in_a_minute(handler: Handler) -> None:
    date = email.utils.formatdate(time.time() + 60, usegmt=True)
    handler.answer(503, {"Retry-After": date})


def other_part(stated: str) -> Callable[[Handler], None]:
    def answer(handler: Handler) -> None:
        handler.answer(206, {"Content-Range": stated, "Content-Length": "5"})
        handler.body(b"wrong")

    return answer


def silence(handler: Handler) -> None:
    """Take the request, and close without a word."""
    handler.close_connection = True


def stop_halfway(go_on: threading.Event) -> Callable[[Handler], None]:
    """Give half of the file, and the rest when `go_on` is set."""

    def give(handler: Handler) -> None:
        handler.answer(200, {"Content-Length": str(SIZE)})
        handler.body(CONTENT[:HALF])
        go_on.wait(20)
        handler.body(CONTENT[HALF:])

    return give


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, which are noted in place of being made."""
    noted: list[float] = []
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=noted.append, time=time.time))
    return noted


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Iterator[None]:
    """The folder each test is in, where nothing but the archives may appear."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    monkeypatch.delenv("TWF_MIRROR", raising=False)
    monkeypatch.delenv("TWF_REGISTRY", raising=False)
    yield
    assert {path.name for path in project.iterdir()} <= {"archives"}


def described(*addresses: str, **changes) -> registry.Entry:
    """An entry of one file at `addresses`, of `CONTENT`; keywords change what is said of it."""
    values = {"size": SIZE, "md5": hashlib.md5(CONTENT).hexdigest()} | changes
    file = registry.File(**values, addresses=list(addresses))
    return registry.entry("resnet50-imagenet").model_copy(update={"files": {"file.bin": file}})


def put(content: bytes) -> None:
    PLACE.parent.mkdir(parents=True)
    PLACE.write_bytes(content)


def fetch_whole(*addresses: str, **changes) -> None:
    fetch("some", described(*addresses, **changes))
    assert_fetched()


def assert_fetched() -> None:
    """The file is whole at its place, with what says so, and nothing of it is left elsewhere."""
    assert PLACE.read_bytes() == CONTENT
    found = {str(p) for p in Path("archives").rglob("*") if not p.is_dir()}
    assert found == {"archives/some/file.bin", "archives/some/checked.json"}


def partials() -> list[Path]:
    """Files on their way, without the lock."""
    return sorted(Path("archives/.partial/some").glob("file.bin.????????"))


def failure(entry: registry.Entry) -> str:
    """The message of a fetch that fails, which leaves nothing at the final place."""
    with pytest.raises(UserError) as caught:
        fetch("some", entry)
    assert not PLACE.exists()
    assert not PLACE.with_name("checked.json").exists()
    return str(caught.value)


def test_a_file_is_fetched_once(server):
    entry = described(server.address())
    assert status("some", entry) == "missing"
    fetch("some", entry)
    fetch("some", entry)
    assert_fetched()
    assert status("some", entry) == "present"
    assert server.ranges == [None]


def test_a_file_of_unknown_size_and_a_short_checksum_is_fetched(server, capsys):
    short = hashlib.sha256(CONTENT).hexdigest()[:8]
    server.faults = [cut(HALF)]
    fetch_whole(server.address(), size=None, md5=None, sha256=short)
    assert server.sent == [HALF, SIZE - HALF]
    PLACE.unlink()
    server.faults = [lambda handler: (handler.answer(200), handler.body(CONTENT))]
    fetch_whole(server.address(), size=None, md5=None, sha256=short)
    assert "file.bin (MiB): 0/? after" in capsys.readouterr().err, "nor is it told by the server"


# What goes wrong on the way


ON = f"bytes={HALF}-"
COME_BACK = [refused(429, {"Retry-After": said}) for said in ("7", "later", "86400")]
RECOVERED: dict[str, tuple[list[Any], list[str | None], list[Any]]] = {  # faults, ranges, pauses
    "two cuts": ([cut(HALF), cut(1000)], [None, ON, f"bytes={HALF + 1000}-"], [1, 1]),
    "no ranges": ([cut(HALF), cut(SIZE, ignore_range=True)], [None, ON], [1]),
    "wrong part": ([cut(HALF), other_part(f"bytes 5-9/{SIZE}")], [None, ON, None], [1, 2]),
    "nonsense": ([cut(HALF), other_part("nonsense")], [None, ON, None], [1, 2]),
    "503": ([refused(503)] * 2, [None] * 3, [1, 2]),
    "408": ([refused(408)] * 2, [None] * 3, [1, 2]),
    "silence": ([silence] * 2, [None] * 3, [1, 2]),
    "come back": (COME_BACK, [None] * 4, [7, 2, 120]),
    "in a minute": ([in_a_minute], [None] * 2, [pytest.approx(60, abs=5)]),
}


@pytest.mark.parametrize("case", RECOVERED)
def test_a_passing_fault_is_tried_again_and_goes_on_from_what_came(server, pauses, case):
    """The pauses grow while nothing new comes, but never beyond two minutes."""
    faults, ranges, expected = RECOVERED[case]
    server.faults = [*faults]
    fetch_whole(server.address())
    assert (server.ranges, pauses) == (ranges, expected)
    if case == "two cuts":
        assert server.sent == [HALF, 1000, SIZE - HALF - 1000]


GIVEN_UP: dict[str, tuple[list[Any], list[float]]] = {  # faults of the first address, pauses
    "404": ([refused(404)], []),
    "503": ([refused(503)] * 5, [1, 2, 4, 8]),
    "always cut": ([cut(after, True) for after in (HALF, 9, HALF, 9, HALF)], [1, 2, 4, 8]),
    "other size": ([cut(HALF), other_part(f"bytes {HALF}-{HALF + 4}/99")], [1]),
    "other file": ([None], []),
    "other file, always cut": ([cut(HALF), None] * 2, [1, 1]),
    "half of another file": ([cut(HALF), *[refused(503)] * 4], [1, 2, 4, 8]),
}


@pytest.mark.parametrize("case", GIVEN_UP)
def test_an_address_that_does_not_give_the_file_is_given_up_for_the_next(server, pauses, case):
    """Bytes that came before are nothing new, and the other address's never follow them."""
    faults, expected = GIVEN_UP[case]
    server.faults = [*faults]
    server.content["/other.bin"] = OTHER
    fetch_whole(server.address("other.bin"), server.address())
    assert [path for path, _ in server.requests] == ["/other.bin"] * len(faults) + ["/file.bin"]
    assert server.ranges[-1] is None and pauses == expected


@pytest.mark.parametrize("calls", [1, 2])
def test_a_file_that_changed_on_the_server_is_fetched_once_more_from_its_start(server, calls):
    """Half of it is another file's, from an earlier request or an earlier call."""
    server.content["/file.bin"] = OTHER
    entry = described(server.address())

    def change_and_cut(handler: Handler) -> None:
        handler.give(limit=HALF)
        server.content["/file.bin"] = CONTENT

    server.faults = [change_and_cut, *[refused(500)] * 4 * (calls - 1)]
    if calls == 2:
        failure(entry)
    fetch("some", entry)
    assert_fetched()
    assert server.ranges[-2:] == [ON, None]


def test_a_silent_server_times_out(server, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", 0.1)
    gone = threading.Event()
    server.faults = [stop_halfway(gone)]
    fetch_whole(server.address())
    gone.set()
    assert server.ranges == [None, ON]


@pytest.mark.parametrize("addresses", [["http://127.0.0.1:9/file.bin"], []])
def test_a_file_that_no_address_gives_is_named_with_what_to_do(addresses):
    said = failure(described(*addresses))
    for part in (str(PLACE), *addresses, "`twf data fetch some`", "TWF_MIRROR"):
        assert part in said


@pytest.mark.parametrize("content", [OTHER, CONTENT[:-1], CONTENT + b"x", b"<html>log in</html>"])
def test_a_wrong_file_names_place_address_and_what_was_expected_and_found(server, content):
    """Its size where that is wrong, before anything is read; else its checksum."""
    server.content["/file.bin"] = content
    said = failure(described(server.address()))
    by_size = len(content) != SIZE
    for each in (CONTENT, content):
        assert (str(len(each)) if by_size else hashlib.md5(each).hexdigest()) in said
    assert str(PLACE) in said and server.address() in said
    assert partials() == []


def test_too_many_bytes_without_a_stated_length_are_noticed(server):
    server.faults = [lambda handler: (handler.answer(200), handler.body(CONTENT + b"x"))]
    assert str(SIZE) in failure(described(server.address()))
    assert len(server.requests) == 1 and partials() == []


@pytest.mark.parametrize("size", [SIZE, None])
def test_a_call_stopped_before_its_check_fetches_nothing_again(server, monkeypatch, size):
    entry = described(server.address(), size=size)
    assert remaining("some", entry) == (size or 0)
    with monkeypatch.context() as patch:
        patch.setattr(registry.File, "mismatch", lambda *_: sys.exit("stopped"))
        with pytest.raises(SystemExit):
            fetch("some", entry)
    assert remaining("some", entry) == 0, "what has come is not still to be fetched"
    fetch("some", entry)
    assert_fetched()
    assert server.sent == [SIZE]


# What is there already


def test_the_right_file_at_its_place_is_kept_without_network():
    put(CONTENT)
    fetch_whole()
    unreachable_host = described("http://127.0.0.1:9/file.bin")
    assert unreachable("some", unreachable_host) is None


def identity(path):
    """Which file it is, its kind, size and time of change; not its time of access."""
    status = path.lstat()
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


@pytest.mark.parametrize("wrong", [OTHER, CONTENT[:-1], b"", "folder", "broken link"])
def test_a_wrong_file_at_its_place_is_named_and_kept(server, wrong):
    entry = described(server.address())
    if isinstance(wrong, bytes):
        put(wrong)
    elif wrong == "folder":
        PLACE.mkdir(parents=True)
    else:
        PLACE.parent.mkdir(parents=True)
        PLACE.symlink_to("nowhere")
    before = identity(PLACE)
    with pytest.raises(UserError, match=f"^{PLACE} .*delete it.*`twf data fetch some`"):
        fetch("some", entry)
    assert wrong == OTHER or str(PLACE) in str(unreachable("some", entry))
    assert identity(PLACE) == before
    assert server.requests == []


def test_status_tells_a_part_from_the_whole():
    file = described().files["file.bin"]
    entry = described().model_copy(update={"files": {"file.bin": file, "second.bin": file}})
    assert status("some", entry) == "missing"
    put(CONTENT)
    assert status("some", entry) == "incomplete"
    PLACE.with_name("second.bin").write_bytes(OTHER)
    assert status("some", entry) == "present", "of the right size: no content is read"
    PLACE.with_name("second.bin").write_bytes(b"")
    assert status("some", entry) == "incomplete"


# Mirrors


@pytest.mark.parametrize("folder", ["", "some"])
@pytest.mark.parametrize("kind", ["folder", "file address", "http address"])
def test_a_mirror_is_asked_first(server, monkeypatch, tmp_path, folder, kind, pauses):
    mirror = tmp_path / "a mirror"
    (mirror / folder).mkdir(parents=True)
    (mirror / folder / "file.bin").write_bytes(CONTENT)
    server.content[str(Path("/lab", folder, "file.bin"))] = CONTENT
    named = {"folder": str(mirror), "file address": mirror.as_uri()}
    monkeypatch.setenv("TWF_MIRROR", named.get(kind, server.address("lab/")))
    assert unreachable("some", described()) is None
    fetch_whole(server.address())
    assert "/file.bin" not in {path for path, _ in server.requests} and pauses == []
    assert (mirror / folder / "file.bin").read_bytes() == CONTENT, "it keeps its own"


def test_a_mirror_without_the_file_or_with_a_wrong_one_is_passed_over(
    server, monkeypatch, tmp_path
):
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "file.bin").write_bytes(OTHER)
    monkeypatch.setenv("TWF_MIRROR", str(tmp_path))
    fetch_whole(server.address())


NO_MIRRORS = ["nowhere", "s3://bucket", "http://", "http://[a", "http://a b"]
WITH_PASSWORDS = ["https://me:key@host/x", "https://key@host", "http://:key@[a"]


@pytest.mark.parametrize("mirror", NO_MIRRORS + WITH_PASSWORDS)
def test_a_mirror_that_is_none_is_named_without_its_password(monkeypatch, mirror):
    monkeypatch.setenv("TWF_MIRROR", mirror)
    said = failure(described())
    assert f"TWF_MIRROR is {mirror!r}" in said or mirror in WITH_PASSWORDS
    assert "TWF_MIRROR is '" in said and "key" not in said


def test_a_token_in_an_address_is_not_told(server, capsys):
    server.faults = [refused(503), *[refused(404)] * 9]
    address = server.address("file.bin?token=key")
    said = failure(described(address)) + str(unreachable("some", described(address)))
    said += "".join(capsys.readouterr())
    assert said.count("file.bin?...") == 3 and "key" not in said
    assert server.requests[0][0] == "/file.bin?token=key"


# Whether a fetch would succeed


def test_whether_it_could_be_fetched_is_told_from_one_byte(server):
    gone = server.address("gone.bin")
    assert unreachable("some", described(gone, server.address())) is None
    assert "bytes=0-0" in server.ranges and not Path("archives").exists()
    said = str(unreachable("some", described(gone)))
    for part in ("file.bin of some", gone, "`twf data fetch some`", "TWF_MIRROR"):
        assert part in said
    server.content["/file.bin"] = b"another"
    assert unreachable("some", described(server.address())) is not None


def test_a_machine_that_does_not_answer_is_told_in_seconds(server, monkeypatch):
    monkeypatch.setattr(download, "PROBE_TIMEOUT", 0.2)
    done = threading.Event()
    server.faults = [lambda handler: done.wait(10)] * 3
    start = time.monotonic()
    assert unreachable("some", described(*[server.address()] * 3)) is not None
    assert time.monotonic() - start < 5
    done.set()


# In processes of their own


@pytest.fixture
def own_registry(server, tmp_path) -> dict[str, str]:
    """The environment in which `twf data fetch some` fetches from the server."""
    path = tmp_path / "registry.json"  # JSON is YAML
    path.write_text(json.dumps({"some": described(server.address()).model_dump()}))
    return {**os.environ, "TWF_REGISTRY": str(path)}


def start_fetch(environment: dict[str, str], **options) -> subprocess.Popen[str]:
    of_project = ["--params", str(PROJECT / "params.yaml")]
    words = [sys.executable, "-m", "twf", "data", "fetch", "some", *of_project]
    return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, **options)


def test_a_killed_fetch_is_resumed(server, own_registry):
    go_on = threading.Event()
    server.faults = [stop_halfway(go_on)]
    process = start_fetch(own_registry)
    until(lambda: [p for p in partials() if p.stat().st_size == HALF], "half of the file")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not PLACE.exists()
    server.requests = []
    process = start_fetch(own_registry)
    _, said = process.communicate(timeout=20)
    go_on.set()
    assert process.returncode == 0, said
    assert_fetched()
    assert server.ranges == [ON]


def test_two_processes_fetch_once(server, own_registry):
    go_on = threading.Event()
    server.faults = [stop_halfway(go_on)]
    first = start_fetch(own_registry)
    until(lambda: server.requests, "a request")
    second = start_fetch(own_registry)
    assert "archives/some/file.bin" in second.stderr.readline(), "it says what it waits for"
    go_on.set()
    for process in (first, second):
        _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
    assert_fetched()
    assert len(server.requests) == 1


def limit_files() -> None:
    """As on a full disk: no file of this process grows over half of the content."""
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, HALF))


def test_a_file_too_large_for_the_disk_is_a_users_mistake(server, own_registry):
    process = start_fetch(own_registry, preexec_fn=limit_files)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 2 and "Traceback" not in said
    assert "archives/.partial/some/file.bin." in said and "free some space" in said
    assert not PLACE.exists()
    server.requests = []
    fetch_whole(server.address())
    assert server.ranges == [ON], "what fitted was kept"


def test_a_folder_that_takes_no_file_is_a_users_mistake(server):
    Path("archives").mkdir()
    Path("archives/.partial").write_text("")
    assert "archives/.partial" in failure(described(server.address()))
