"""Records that others replaced, kept for a while: a hyperparameter put back costs no training.

They lie in a folder that git ignores, by the digest of their parameters. What they say of
themselves decides, as it does of each record: they say what they were made from, and by which code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twf import files
from twf.errors import UserError
from twf.results import record
from twf.study import Run

KEPT = 5  # of a run


def keep(run: Run) -> Path | None:
    """Keep a run's record, which is to be replaced, if it has other parameters; say where.

    At most `KEPT` of a run: the oldest go. Where it cannot be kept, a warning says why: the record
    that replaces it matters more.
    """
    path = files.record_file(run.study, run.id)
    try:
        (row,) = record.read(path, ["digest"]).to_pylist()
    except (FileNotFoundError, UserError):  # nothing, or nothing that can be read
        return None
    if row["digest"] == run.digest:
        return None
    kept = files.replaced_file(run.study, run.id, row["digest"])
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
    kept = files.replaced_file(run.study, run.id, run.digest)
    try:
        (row,) = record.read(kept).to_pylist()
    except (FileNotFoundError, UserError):
        return None
    provenance = record.provenance(row)
    by_others = provenance.get("code", {}).get("method_hash") != made_by
    if row["digest"] != run.digest or by_others or not origin.items() <= provenance.items():
        return None
    content = kept.read_bytes()  # which `keep` may remove as the oldest
    keep(run)
    _write(files.record_file(run.study, run.id), content)
    kept.unlink(missing_ok=True)
    return row


def _write(path: Path, content: bytes) -> None:
    with files.atomic(path) as partial:  # with a time of now, as what is made anew
        partial.write_bytes(content)
