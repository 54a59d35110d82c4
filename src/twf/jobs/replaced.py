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

    At most `KEPT` of a run: the oldest go.
    """
    path = files.record_file(run.study, run.id)
    try:
        (row,) = record.read(path, ["digest"]).to_pylist()
    except (FileNotFoundError, UserError):  # nothing, or nothing that can be read
        return None
    if row["digest"] == run.digest:
        return None
    kept = files.replaced_file(run.study, run.id, row["digest"])
    _copy(path, kept)
    others = sorted(kept.parent.iterdir(), key=lambda other: other.stat().st_mtime_ns)
    for other in others[:-KEPT]:
        other.unlink()
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
    keep(run)
    _copy(kept, files.record_file(run.study, run.id))
    kept.unlink(missing_ok=True)
    return row


def _copy(path: Path, to: Path) -> None:
    with files.atomic(to) as partial:  # with a time of now, as what is made anew
        partial.write_bytes(path.read_bytes())
