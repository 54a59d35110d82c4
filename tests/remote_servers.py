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
from pathlib import Path
from typing import Any

from processes import environment, free_port, until

WEED, SSHD = (shutil.which(name, path=environment()["PATH"]) for name in ("weed", "sshd"))
BUCKET = "studies"
KEYS = {True: ("a-key", "its-secret"), False: ("a-key", "another-secret")}  # S3's, right and wrong


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


class S3:
    """A bucket of a SeaweedFS server; `place` is this remote's folder in it."""

    name = "s3"

    def __init__(self, port: int, place: str) -> None:
        self._place = place
        self._client = client(port)
        self.url = f"s3://{BUCKET}/{place}"
        self.options = {"endpointurl": f"http://127.0.0.1:{port}"}

    def keys(self, right: bool) -> dict[str, str]:
        return dict(zip(("access_key_id", "secret_access_key"), KEYS[right], strict=True))

    def objects(self) -> dict[str, int]:
        """The size of each object by its name."""
        pages = self._client.get_paginator("list_objects_v2")
        return {
            entry["Key"].removeprefix(f"{self._place}/"): entry["Size"]
            for page in pages.paginate(Bucket=BUCKET, Prefix=f"{self._place}/")
            for entry in page.get("Contents", [])
        }

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": BUCKET, "Key": f"{self._place}/{name}"}

    def write(self, name: str, content: bytes) -> None:
        self._client.put_object(**self._at(name), Body=content)

    def read(self, name: str) -> bytes:
        return self._client.get_object(**self._at(name))["Body"].read()

    def delete(self, name: str) -> None:
        self._client.delete_object(**self._at(name))


class Ssh:
    """A folder behind an OpenSSH server."""

    name = "ssh"

    def __init__(self, port: int, keys: Path, folder: Path) -> None:
        self._keys = keys
        self._folder = folder
        self.url = f"ssh://{getpass.getuser()}@127.0.0.1:{port}{folder}"
        self.options: dict[str, str] = {}

    def keys(self, right: bool) -> dict[str, str]:
        return {"keyfile": str(self._keys / ("right" if right else "wrong"))}

    def objects(self) -> dict[str, int]:
        """The size of each object by its name."""
        return {
            str(path.relative_to(self._folder)): path.stat().st_size
            for path in self._folder.rglob("*")
            if path.is_file()
        }

    def write(self, name: str, content: bytes) -> None:
        (self._folder / name).write_bytes(content)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def delete(self, name: str) -> None:
        (self._folder / name).unlink()


def client(port: int) -> Any:
    """S3's own client, past the line."""
    import botocore.session

    key, secret = KEYS[True]
    return botocore.session.get_session().create_client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
    )


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """The port of a SeaweedFS server that keeps its objects in `folder`."""
    import botocore.exceptions

    key, secret = KEYS[True]
    identity = {"name": "tests", "credentials": [{"accessKey": key, "secretKey": secret}]}
    identities = [identity | {"actions": ["Admin", "Read", "Write", "List", "Tagging"]}]
    (folder / "s3.json").write_text(json.dumps({"identities": identities}))
    (folder / "objects").mkdir()
    ports = {service: free_port() for service in ("s3", "master", "volume", "filer")}
    words = [str(WEED), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3"]
    words += [f"-dir={folder / 'objects'}", f"-s3.config={folder / 's3.json'}"]
    words += ["-master.volumeSizeLimitMB=64", "-volume.max=20", "-master.telemetry=false"]
    words += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    # gRPC's ports would be these plus 10000, which may be none at all
    words += [f"-{service}.port={port}" for service, port in ports.items()]
    words += [f"-{service}.port.grpc={free_port()}" for service in ports]
    with running(words, folder / "log", ports["s3"]):
        for attempt in range(60):
            try:
                client(ports["s3"]).create_bucket(Bucket=BUCKET)
                break
            except (botocore.exceptions.ClientError, botocore.exceptions.HTTPClientError):
                if attempt == 59:
                    raise
                time.sleep(0.5)
        yield ports["s3"]


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
def ssh_server(folder: Path) -> Iterator[int]:
    """The port of an sshd that takes the key `right` of `folder`, and not `wrong`."""
    for name in ("host", "right", "wrong"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where sshd leaves its privileges
    port = free_port()
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(port=port, folder=folder))
    words = [str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config")]
    with running(words, folder / "log", port):
        yield port
