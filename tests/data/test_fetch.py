"""Fetching archives from servers that fail, and beside what exists already."""

import hashlib
import http.server
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from twf.data import registry
from twf.data.fetch import fetch
from twf.errors import UserError

CONTENT = random.Random(0).randbytes(2**20)
OTHER = b"<html>log in</html>"
MD5 = hashlib.md5(CONTENT).hexdigest()
FILE = Path("archives/some/file.bin")
NOBODY = "http://127.0.0.1:9/file.bin"


class Server(http.server.ThreadingHTTPServer):
    """Serves the folder `served`."""

    daemon_threads = True

    def __init__(self, served: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(served)))
        self.requests: list[str] = []

    def address(self, path: str = "file.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(http.server.SimpleHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """It has `CONTENT` as `file.bin`, and `OTHER` as `other.bin`."""
    monkeypatch.chdir(tmp_path)
    served = tmp_path / "served"
    served.mkdir()
    (served / "file.bin").write_bytes(CONTENT)
    (served / "other.bin").write_bytes(OTHER)
    with Server(served) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


def entry(*addresses: str) -> registry.Entry:
    file = registry.File(size=len(CONTENT), checksum=f"md5:{MD5}", addresses=list(addresses))
    return registry.entry("resnet50-imagenet").model_copy(update={"files": {"file.bin": file}})


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


def test_a_file_is_fetched_once_and_one_put_there_is_checked(server):
    described = entry(server.address())
    for _ in range(2):
        fetch("some", described)
        assert_fetched()
    assert server.requests == ["/file.bin"]
    fetch("some", entry(NOBODY))  # without network


@pytest.mark.parametrize("other", ["other.bin", NOBODY, "file:///nowhere"])
def test_where_one_address_fails_the_next_one_is_asked(server, other):
    other = other if ":" in other else server.address(other)
    fetch("some", entry(other, server.address("gone.bin"), server.address(), server.address()))
    assert_fetched()


def test_a_wrong_file_names_address_and_checksums_and_is_not_kept(server):
    message = refusal(entry(*(server.address(f"{name}.bin") for name in ("gone", "other"))))
    parts = (str(FILE), "/other.bin", MD5, hashlib.md5(OTHER).hexdigest(), "`twf data fetch some`")
    assert all(part in message for part in parts)
    assert not [path for path in Path("archives").rglob("*") if path.is_file()]
    assert "has no address" in refusal(entry())


def test_what_exists_and_is_wrong_is_named_and_kept(server):
    FILE.parent.mkdir(parents=True)
    FILE.write_bytes(OTHER)
    message = refusal(entry(server.address()))
    assert str(FILE) in message and "delete" in message and "`twf data fetch some`" in message
    assert FILE.read_bytes() == OTHER and server.requests == []
