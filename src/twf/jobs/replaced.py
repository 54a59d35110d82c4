"""Records that others replaced, kept for a while: a hyperparameter put back costs no training.

They lie in a folder that git ignores, by the digests of their parameters and of their inputs. What
they say of themselves decides, as it does of each record: what they were made from, by which code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twf import files
from twf.errors import UserError
from twf.results import record
from twf.study import Run

KEPT = 5  # of a run


def keep(run: Run, made_from: Mapping[str, str]) -> Path | None:
    """Keep a run's record if what replaces it has other parameters, or is `made_from` other inputs.

    Says where it is kept.

    At most `KEPT` of a run: the oldest go. Where it cannot be kept, a warning says why: the record
    that replaces it matters more.
    """
    path = files.record_file(run.study, run.id)
    try:
        (row,) = record.read(path, ["digest", "provenance"]).to_pylist()
    except (FileNotFoundError, UserError):  # nothing, or nothing that can be read
        return None
    kept = _place(run, row["digest"], record.provenance(row).get("inputs", {}))
    if kept == _place(run, run.digest, made_from):
        return None
    try:
        _write(kept, path.read_bytes())
        found = kept.parent.glob("[!.]*.parquet")  # without what a killed process left
        others = sorted(found, key=lambda other: other.stat().st_mtime_ns)
        for other in others[:-KEPT]:
            other.unlink(missing_ok=True)
    except (OSError, UserError) as error:
        print(f"warning: {path} is not kept for a return to its parameters: {error}", flush=True)
        return None
    return kept


def take(run: Run, made_by: str | None, origin: Mapping[str, Any]) -> dict[str, Any] | None:
    """Put the kept record with a run's parameters back, and give it; None where there is none.

    It must have been made by the code `made_by`, a hash, and be of the `origin` that a record would
    have now: the same data, checkpoint, versions and arithmetic. The one that it replaces is kept.
    """
    kept = _place(run, run.digest, origin["inputs"])
    try:
        (row,) = record.read(kept).to_pylist()
    except (FileNotFoundError, UserError):
        return None
    provenance = record.provenance(row)
    by_others = provenance.get("code", {}).get("method_hash") != made_by
    if row["digest"] != run.digest or by_others or not origin.items() <= provenance.items():
        return None
    content = kept.read_bytes()  # which `keep` may remove as the oldest
    keep(run, origin["inputs"])
    _write(files.record_file(run.study, run.id), content)
    kept.unlink(missing_ok=True)
    return row


def _place(run: Run, digest: str, made_from: Mapping[str, str]) -> Path:
    inputs = hashlib.sha256(json.dumps(dict(made_from), sort_keys=True).encode()).hexdigest()
    return files.replaced_file(run.study, run.id, f"{digest}-{inputs[:16]}")


def _write(path: Path, content: bytes) -> None:
    with files.atomic(path) as partial:  # with a time of now, as what is made anew
        partial.write_bytes(content)
