"""Rows as a table to read and a file to keep."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.steps import Row
from twf.files import atomic
from twf.jobs.provenance import code_origin, device_and_versions
from twf.results.show import markdown

RESULTS = Path(__file__).parent / "results"


HEADINGS = {
    "milliseconds": "ms",
    "images_per_second": "images/s",
    "peak_memory_mib": "peak MiB",
    "times_reference": "times published",
    "times_alone": "times alone",
}
KEPT = ("fastest", "slowest")  # in the file alone


def show(rows: list[Row]) -> None:
    """Print a table for each measurement: what differs, and what was found."""
    for measurement in dict.fromkeys(row["measurement"] for row in rows):
        own = [row for row in rows if row["measurement"] == measurement]
        columns = list(dict.fromkeys(key for row in own for key in row))[1:]  # but that
        names = {c: HEADINGS.get(c, c.replace("_", " ")) for c in columns if c not in KEPT}
        texts = [{name: _cell(row.get(c)) for c, name in names.items()} for row in own]
        print(f"\n{measurement}\n\n{markdown(texts)}")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "" if value is None else str(value)


def write(name: str, rows: list[Row], device: torch.device) -> Path:
    """Write rows, and what they were measured on, to `benchmarks/results/NAME.json`."""
    path = RESULTS / f"{name}.json"
    about = device_and_versions(device) | {
        "commit": code_origin()["commit"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    with atomic(path) as partial:
        partial.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    return path
