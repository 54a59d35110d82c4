"""What wandb has written of an offline run."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import wandb

BLOCK, HEADER = 2**15, 7


def stored_records(path: Path) -> Iterator[Any]:
    """The protocol buffers of a `.wandb` file, which is a log in LevelDB's form.

    After 7 bytes of its own come blocks of 32 KiB, of which those bytes are part; a record is one
    or more fragments of checksum, length and kind, and no fragment crosses a block.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    content, position, joined = path.read_bytes(), 7, b""
    while position < len(content):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK  # padding
        _, length, kind = struct.unpack_from("<IHB", content, position)
        position += HEADER + length
        joined += content[position - length : position]
        if kind in (1, 4):  # whole, or the last fragment
            yield Record.FromString(joined)
            joined = b""


def items(entries: Any) -> dict[str, Any]:
    """Keys and values of history, summary or configuration."""
    return {
        entry.key or "/".join(entry.nested_key): json.loads(entry.value_json) for entry in entries
    }


def without_clocks(values: dict[str, Any]) -> dict[str, Any]:
    """A row or summary without what wandb adds of its own, but for the step."""
    return {key: value for key, value in values.items() if key == "_step" or key[0] != "_"}


def stored_run(folder: Path) -> dict[str, Any]:
    """What a folder in `wandb/` holds: `run`, `config`, `history`, `summary`, `exit`."""
    wandb.teardown()  # another process writes, and is done when it has ended
    (path,) = folder.glob("run-*.wandb")
    records = list(stored_records(path))
    runs = [record.run for record in records if record.HasField("run")]
    summary: dict[str, Any] = {}
    for record in records:
        if record.HasField("summary"):
            summary |= items(record.summary.update)
    history = [
        without_clocks(items(record.history.item) | {"_step": record.history.step.num})
        for record in records
        if record.HasField("history")
    ]
    return {
        "run": runs[0],
        "config": without_clocks(items(runs[0].config.update)),
        "history": history,
        "summary": without_clocks(summary),
        "exit": [record.exit.exit_code for record in records if record.HasField("exit")],
    }
