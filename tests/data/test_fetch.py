"""Fetching archives from servers and mirrors that fail, and beside what exists already."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pooch.core
import pytest
from processes import until
from project import PROJECT

from twf.data import registry
from twf.data.fetch import fetch, status
from twf.errors import UserError

CONTENT = random.Random(0).randbytes(2**20)
OTHER = b"<html>log in</html>"
MD5 = hashlib.md5(CONTENT).hexdigest()
FILE = Path("archives/some/file.bin")
Fault = Callable[["Handler"], None]


class Server(http.server.ThreadingHTTPServer):
    """Serves the folder `served`, but for `faults`, which answer the next requests."""

    daemon_threads = True

    def __init__(self, served: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(served)))
        self.faults: list[Fault] = []
        self.requests: list[str] = []

    def address(self, path: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"

    def handle_error(self, *_: object) -> None:
        """Clients that are killed are part of the tests."""


class Handler(http.server.SimpleHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.server.faults:
            self.server.faults.pop(0)(self)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


def cut(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    handler.wfile.write(CONTENT[:1000])


def busy(handler: Handler) -> None:
    handler.send_error(503)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """It has `CONTENT` as `file.bin` and `lab/file.bin`, and `OTHER` as `other.bin`."""
    served = tmp_path / "served"
    (served / "lab").mkdir(parents=True)
    for name, content in {"file.bin": CONTENT, "lab/file.bin": CONTENT, "other.bin": OTHER}.items():
        (served / name).write_bytes(content)
    with Server(served) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TWF_MIRROR", raising=False)
    monkeypatch.setattr(pooch.core.time, "sleep", lambda seconds: None)


def entry(*addresses: str, file: str = "file.bin") -> registry.Entry:
    described = registry.File(size=len(CONTENT), md5=MD5, addresses=list(addresses))
    return registry.entry("resnet50-imagenet").model_copy(update={"files": {file: described}})


def assert_fetched() -> None:
    """The file is complete, its receipt is there, and nothing else is left."""
    assert FILE.read_bytes() == CONTENT
    left = {str(path) for path in Path("archives").rglob("*") if path.is_file()}
    assert left == {"archives/some/file.bin", "archives/some/checked.json"}


def refusal(described: registry.Entry) -> str:
    with pytest.raises(UserError) as caught:
        fetch("some", described)
    assert not Path("archives/some/checked.json").exists()
    return str(caught.value)


def test_a_file_is_fetched_once(server):
    described = entry(server.address())
    assert status("some", described) == "missing"
    for _ in range(2):
        fetch("some", described)
        assert_fetched()
    assert status("some", described) == "present"
    assert server.requests == ["/file.bin"]


NOBODY = "http://127.0.0.1:9/file.bin"


@pytest.mark.parametrize(
    ("faults", "before"),
    [
        ([cut, cut], []),
        ([busy, cut], []),
        ([], ["other.bin", NOBODY]),
        ([], ["gone.bin", "file:///nowhere"]),
    ],
)
def test_a_passing_fault_is_tried_again_and_then_the_next_address(server, faults, before):
    server.faults = [*faults]
    addresses = [name if ":" in name else server.address(name) for name in before]
    fetch("some", entry(*addresses, server.address()))
    assert_fetched()


def test_a_wrong_file_names_address_and_checksums_and_is_not_kept(server):
    addresses = [server.address(f"{name}.bin?token=key") for name in ("gone", "other")]
    message = refusal(entry(*addresses))
    parts = (str(FILE), "/other.bin?...", MD5, hashlib.md5(OTHER).hexdigest(), "TWF_MIRROR")
    assert all(part in message for part in (*parts, "`twf data fetch some`"))
    assert "key" not in message
    assert not [path for path in Path("archives").rglob("*") if path.is_file()]
    assert "has no address" in refusal(entry())


@pytest.mark.parametrize("make", [lambda: FILE.write_bytes(OTHER), FILE.mkdir])
def test_what_exists_and_is_wrong_is_named_and_kept(server, make):
    FILE.parent.mkdir(parents=True)
    make()
    before = FILE.lstat()
    message = refusal(entry(server.address()))
    assert str(FILE) in message and "delete" in message and "`twf data fetch some`" in message
    assert (FILE.lstat().st_ino, FILE.lstat().st_size) == (before.st_ino, before.st_size)
    assert server.requests == []


def test_a_good_file_outlives_the_failure_of_another():
    FILE.parent.mkdir(parents=True)
    FILE.write_bytes(CONTENT)
    both = entry(file="other").files | entry().files
    described = entry().model_copy(update={"files": both})
    assert status("some", described) == "missing"
    assert "archives/some/other" in refusal(described)
    fetch("some", entry(NOBODY))  # without network
    assert_fetched()


@pytest.mark.parametrize("kind", ["folder", "folder of names", "address"])
def test_a_mirror_is_asked_first(server, monkeypatch, tmp_path, kind):
    mirror = tmp_path / "a mirror"
    (mirror / "some").mkdir(parents=True)
    right = mirror / "some" if kind == "folder of names" else mirror
    (mirror / "file.bin").write_bytes(OTHER)  # a wrong one is passed over
    (right / "file.bin").write_bytes(CONTENT)
    monkeypatch.setenv("TWF_MIRROR", server.address("lab/") if kind == "address" else str(mirror))
    fetch("some", entry(server.address()))
    assert_fetched()
    assert "/file.bin" not in server.requests
    assert (right / "file.bin").read_bytes() == CONTENT, "the mirror keeps its own"


@pytest.mark.parametrize("mirror", ["nowhere", "s3://bucket", "http://", "https://me:key@host/x"])
def test_a_wrong_mirror_is_named_without_its_password(monkeypatch, mirror):
    monkeypatch.setenv("TWF_MIRROR", mirror)
    message = refusal(entry())
    assert "TWF_MIRROR is '" in message and "key" not in message


def test_a_killed_fetch_leaves_no_file_and_two_processes_fetch_once(server, tmp_path):
    described = {"some": entry(server.address()).model_dump()}
    Path("registry.json").write_text(json.dumps(described))  # JSON is YAML
    words = [sys.executable, "-m", "twf", "data", "fetch", "some"]
    words += ["--params", str(PROJECT / "params.yaml")]
    environment = {**os.environ, "TWF_REGISTRY": str(tmp_path / "registry.json")}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)

    go_on = threading.Event()
    server.faults = [lambda handler: go_on.wait(20)] * 2
    killed = start()
    until(lambda: server.requests, "a request")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not FILE.exists() and list(Path("archives/.partial/some").iterdir())
    both = [start(), start()]
    until(lambda: len(server.requests) == 2, "a second request")
    go_on.set()
    errors = [process.communicate(timeout=60)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert_fetched()
    assert len(server.requests) <= 3  # that which was held back is asked again
