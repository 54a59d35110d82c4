"""In the place of a Kubernetes cluster, for tests: the API that Snakemake's executor calls.

What is submitted is checked against Kubernetes' own schema. A job's command is a process in an
empty folder, as its container would start in an empty `/workdir`; claims are folders beside it.
There are no images, nodes or limits.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import yaml

VERSION = "1.37"  # of Kubernetes, whose schema submitted objects follow
WORKDIR = "/workdir"


def refusal(body: dict[str, Any], kind: str, group: str) -> str:
    """Why Kubernetes would not take an object that came to a group's address; empty if it would."""
    import kubernetes_validate

    whole = {"apiVersion": group, "kind": kind} | body
    try:
        kubernetes_validate.validate(whole, VERSION, strict=True)
    except kubernetes_validate.ValidationError as error:
        return str(error.message)
    if kind == "Job":  # no part of the schema: Kubernetes gives no part of a device, and no more
        for container in body["spec"]["template"]["spec"]["containers"]:
            wanted, most = (
                container.get("resources", {}).get(of, {}) for of in ("requests", "limits")
            )
            for name in wanted:
                if "/" in name and wanted[name] != most.get(name):
                    return f"{name}: limit must be set for non overcommitable resources"
    return ""


class Cluster:
    """Jobs and secrets that were submitted, by name; `folder` gets a folder per job and claim."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.jobs: dict[str, dict[str, Any]] = {}
        self.refused: list[str] = []
        self.secrets: dict[str, dict[str, str]] = {}
        self._environment = environment
        self._pods: dict[str, subprocess.Popen[bytes]] = {}

    def submit(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        self.jobs[name] = job
        spec = job["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        here = self.folder / name
        here.mkdir(parents=True)
        claims = {
            volume["name"]: volume["persistentVolumeClaim"]["claimName"]
            for volume in spec["volumes"]
            if "persistentVolumeClaim" in volume
        }
        for mount in container["volumeMounts"]:
            if mount["name"] in claims:
                claim = self.folder / claims[mount["name"]]
                claim.mkdir(exist_ok=True)
                (here / Path(mount["mountPath"]).relative_to(WORKDIR)).symlink_to(claim)
        environment = dict(self._environment)
        for entry in container["env"]:
            source = entry["valueFrom"]["secretKeyRef"]
            value = self.secrets[source["name"]][source["key"]]
            environment[entry["name"]] = base64.b64decode(value).decode()
        with (self.folder / f"{name}.log").open("wb") as log:
            self._pods[name] = subprocess.Popen(
                [*container["command"], *container["args"]],
                cwd=here,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def evict(self, name: str) -> None:
        """End a job at once, with all that it started."""
        if name in self._pods and self._pods[name].poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pods[name].pid, signal.SIGKILL)
            self._pods[name].wait()

    def status(self, name: str) -> dict[str, Any]:
        code = self._pods[name].poll()
        return {} if code is None else {"failed" if code else "succeeded": 1}

    def pod(self, name: str) -> dict[str, Any]:
        code = self._pods[name].poll()
        state = {"running": {}} if code is None else {"terminated": {"exitCode": code % 256}}
        container = {"name": "snakemake", "state": state, "ready": code is None}
        container |= {"image": "", "imageID": "", "restartCount": 0}
        return {"metadata": {"name": name}, "status": {"containerStatuses": [container]}}


class _Api(BaseHTTPRequestHandler):
    cluster: Cluster

    def log_message(self, *_: Any) -> None: ...

    def _answer(self, body: dict[str, Any] | str, code: int = 200) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _sent(self) -> dict[str, Any]:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def _match(self, pattern: str) -> re.Match[str] | None:
        return re.fullmatch(pattern, urlparse(self.path).path)

    def do_POST(self) -> None:
        body = self._sent()
        of_job = self._match("/apis/batch/v1/namespaces/[^/]+/jobs") is not None
        assert of_job or self._match("/api/v1/namespaces/[^/]+/secrets"), self.path
        problem = refusal(body, *(("Job", "batch/v1") if of_job else ("Secret", "v1")))
        if problem:
            self.cluster.refused.append(problem)
            self._answer({"message": problem}, 422)
            return
        if of_job:
            self.cluster.submit(body)
        else:
            self.cluster.secrets[body["metadata"]["name"]] = body["data"]
        self._answer(body, 201)

    def do_GET(self) -> None:
        asked = parse_qs(urlparse(self.path).query)
        if match := self._match("/apis/batch/v1/namespaces/[^/]+/jobs/([^/]+)/status"):
            job = self.cluster.jobs[match[1]] | {"status": self.cluster.status(match[1])}
            self._answer(job)
        elif self._match("/api/v1/namespaces/[^/]+/pods"):
            name = asked["labelSelector"][0].removeprefix("job-name=")
            self._answer({"items": [self.cluster.pod(name)]})
        elif match := self._match("/api/v1/namespaces/[^/]+/pods/([^/]+)/log"):
            if asked.get("previous", ["false"])[0].lower() == "true":  # it never started twice
                self._answer({"message": "previous terminated container not found"}, 400)
            else:
                self._answer(self.cluster.log(match[1]))
        else:
            raise AssertionError(self.path)

    def do_DELETE(self) -> None:
        self._sent()
        match = self._match("/.+/(jobs|pods|secrets)/([^/]+)")
        assert match is not None, self.path
        if match[1] == "secrets":
            del self.cluster.secrets[match[2]]
        else:
            self.cluster.evict(match[2])
        self._answer({})


@contextlib.contextmanager
def kubernetes_server(folder: Path, environment: dict[str, str]) -> Iterator[Cluster]:
    """A cluster whose jobs have this environment; `folder/kubeconfig` says where it is."""
    folder.mkdir()
    cluster = Cluster(folder, environment)
    handler = type("Api", (_Api,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    address = f"http://127.0.0.1:{server.server_port}"
    configuration = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": address}}],
        "users": [{"name": "test", "user": {}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(configuration))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for name in cluster.jobs:
            cluster.evict(name)
