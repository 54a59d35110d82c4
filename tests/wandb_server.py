"""A server that takes what wandb sends, and says what it has, as Weights & Biases would.

It knows the requests of a run's life and no other. Like the original it puts the lines of a run's
history where their offset says, so that a run told again replaces its rows, and lines appended
twice would be seen twice.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class StoredRun:
    """What is kept of a run."""

    config: dict[str, Any] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    state: str = "running"


class WandbServer:
    """Runs by project and identifier, and how often each request came."""

    address = ""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all."""
        self.runs: dict[tuple[str, str], StoredRun] = {}
        self.requests: Counter[str] = Counter()
        self.paths: set[str] = set()  # of requests of every kind
        self.down = False  # it refuses every request
        self.refused: set[str] = set()  # identifiers of runs that it does not take

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        found = re.search(r"(?:query|mutation)\s+(\w+)", query)
        name = found.group(1) if found else ""
        self.requests[name] += 1
        handler = getattr(self, f"_{name}", None)
        return {} if handler is None else handler(variables)

    def _Viewer(self, _: Any) -> dict[str, Any]:  # noqa: N802
        teams = {"edges": []}
        return {"viewer": {"id": "1", "entity": "me", "username": "me", "teams": teams}}

    def _GetDefaultEntity(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"viewer": {"id": "1", "entity": "me"}}

    def _UpsertBucket(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        known = said.get("id")  # of `_node`
        project, name = known.split("/") if known else (said["project"], said["name"])
        run = self.runs.setdefault((project, name), StoredRun())
        if said.get("config"):
            run.config |= json.loads(said["config"])
        if said.get("summaryMetrics"):
            run.summary = json.loads(said["summaryMetrics"])
        run.about |= {key: value for key, value in said.items() if value is not None}
        place = {"id": "1", "name": project, "entity": {"id": "1", "name": "me"}}
        bucket = {"id": f"{project}/{name}", "name": name, "displayName": name, "project": place}
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    def _ArtifactType(self, _: Any) -> dict[str, Any]:  # noqa: N802
        return {"project": None}

    def _CreateArtifact(self, _: Any) -> dict[str, Any]:  # noqa: N802
        latest = {"id": "1", "versionIndex": 0}
        sequence = {"id": "1", "latestArtifact": latest}
        artifact = {"id": "1", "state": "COMMITTED", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": artifact}}

    def _CreateRunFiles(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        files = [{"name": f, "uploadUrl": f"{self.address}/upload/{f}"} for f in said["files"]]
        return {"createRunFiles": {"runID": "1", "uploadHeaders": [], "files": files}}

    def _Runs(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        """All of a project's runs, in one page."""
        nodes = [self._node(*key) for key in self.runs if key[0] == said["project"]]
        if not nodes:
            return {"project": None}
        page = {"endCursor": "", "hasNextPage": False}
        edges = [{"node": node, "cursor": ""} for node in nodes]
        return {"project": {"runCount": len(nodes), "runs": {"edges": edges, "pageInfo": page}}}

    def _node(self, project: str, name: str) -> dict[str, Any]:
        run = self.runs[project, name]
        return {
            "id": f"{project}/{name}",
            "name": name,
            "displayName": run.about.get("displayName"),
            "projectId": "1",
            "state": run.state,
            "config": json.dumps(run.config),
            "group": run.about.get("groupName"),
            "jobType": run.about.get("jobType"),
            "description": None,
            "notes": None,
            "summaryMetrics": json.dumps(run.summary),
            "systemMetrics": "{}",
            "tags": run.about.get("tags", []),
            "historyLineCount": len(run.history),
            "user": {"name": "me", "username": "me"},
        }

    def stream(self, project: str, name: str, said: dict[str, Any]) -> None:
        run = self.runs[project, name]
        for file, part in (said.get("files") or {}).items():
            lines = [json.loads(line) for line in part["content"]]
            if file == "wandb-history.jsonl":
                run.history[part["offset"] : part["offset"] + len(lines)] = lines
            elif file == "wandb-summary.json":
                run.summary = lines[-1]
        if said.get("complete"):
            run.state = "failed" if said.get("exitcode") else "finished"


@contextlib.contextmanager
def serving() -> Iterator[WandbServer]:
    """A server on a free port of this machine; `address` is where."""
    server = WandbServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            server.paths.add(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            answer: dict[str, Any] = {}
            said = json.loads(body) if self.path == "/graphql" else {}
            variables = said.get("variables") or {}
            refused = server.down or variables.get("name") in server.refused
            if said and not refused:
                answer = {"data": server.answer(said["query"], variables)}
            elif self.path.endswith("/file_stream") and not refused:
                _, _, _, project, name, _ = self.path.split("/")
                server.stream(project, name, json.loads(body))
            content = json.dumps(answer).encode()
            self.send_response(403 if refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        listener.handle_error = lambda *_: None  # type: ignore[method-assign]  # wandb hangs up
        server.address = f"http://127.0.0.1:{listener.server_address[1]}"
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            listener.shutdown()
