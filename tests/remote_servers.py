"""Real servers for DVC's remotes on this machine, for tests: S3 and SSH."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fsspec
import pytest
from processes import environment, free_port, until

WEED, SSHD = (shutil.which(name, path=environment()["PATH"]) for name in ("weed", "sshd"))
KEY, SECRET, BUCKET = "a-key", "its-secret", "studies"


@dataclass(frozen=True)
class Remote:
    """An empty remote on a server, and a way to it past DVC."""

    url: str
    options: dict[str, str]  # of DVC's, in git
    keys: dict[bool, dict[str, str]]  # options too, which git does not see: right and wrong
    refusal: str  # of a wrong key
    storage: Any  # fsspec's
    folder: str  # in the storage


@contextlib.contextmanager
def running(words: list[str], log: Path, port: int) -> Iterator[None]:
    """A server that answers at `port` inside the block."""

    def answers() -> bool:
        assert server.poll() is None, log.read_text()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        return False

    with log.open("wb") as output:
        server = subprocess.Popen(words, stdout=output, stderr=output)
    try:
        until(answers, f"a server; see {log}")
        yield
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[Remote]:
    """A bucket of a SeaweedFS server."""
    identity = {"name": "tests", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
    identities = [identity | {"actions": ["Admin", "Read", "Write", "List", "Tagging"]}]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    ports = {service: free_port() for service in ("s3", "master", "volume", "filer")}
    words = [str(WEED), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    words += [f"-dir={folder}", f"-s3.config={folder / 's3.json'}"]
    words += ["-master.volumeSizeLimitMB=64", "-volume.max=20", "-master.telemetry=false"]
    words += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    # gRPC's ports would be these plus 10000, which may be none at all
    words += [f"-{service}.port={port}" for service, port in ports.items()]
    words += [f"-{service}.port.grpc={free_port()}" for service in ports]
    address = f"http://127.0.0.1:{ports['s3']}"
    own = {"key": KEY, "secret": SECRET, "endpoint_url": address, "use_listings_cache": False}
    keys = {
        right: {"access_key_id": KEY, "secret_access_key": SECRET if right else "another-secret"}
        for right in (True, False)
    }
    with running(words, folder / "log", ports["s3"]):
        storage = fsspec.filesystem("s3", **own)
        for attempt in range(60):  # the server answers before its parts know each other
            try:
                storage.mkdir(BUCKET)
                break
            except OSError:
                if attempt == 59:
                    raise
                time.sleep(0.5)
        url, options = f"s3://{BUCKET}/twf", {"endpointurl": address}
        yield Remote(url, options, keys, "403", storage, f"{BUCKET}/twf")


SSHD_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/right.pub
PidFile none
PasswordAuthentication no
StrictModes no  # folders for temporary files belong to many
UsePAM no
MaxStartups 100
Subsystem sftp internal-sftp
"""


@contextlib.contextmanager
def ssh(folder: Path) -> Iterator[Remote]:
    """A folder behind an sshd that takes the key `right`, and not `wrong`."""
    for name in ("host", "right", "wrong"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd leaves its privileges
    port = free_port()
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(port=port, folder=folder))
    words = [str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")]
    keys = {right: {"keyfile": str(folder / ("right" if right else "wrong"))} for right in (1, 0)}
    url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{folder}/remote"
    storage = fsspec.filesystem("file")
    with running(words, folder / "log", port):
        yield Remote(url, {}, keys, "Permission denied", storage, str(folder / "remote"))


@pytest.fixture(params=[(s3, WEED, "dvc_s3"), (ssh, SSHD, "dvc_ssh")], ids=["s3", "ssh"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """An empty remote on a server."""
    server, program, plugin = request.param
    if program is None or find_spec(plugin) is None:
        pytest.skip(f"no server here, or no {plugin}")
    folder = tmp_path / "server"
    folder.mkdir()
    with server(folder) as made:
        yield made
