"""Which runs Snakemake makes: those whose records are missing or not the plan's, and no others.

Snakemake goes by modification times and by its notes of earlier jobs. Both say nothing of a record
that git, DVC or a user has put there. The record itself does: `twf.results.status` reads it for
Snakemake as it does for `twf plan`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twf import files
from twf.errors import UserError
from twf.results import status
from twf.study import Run


class Records:
    """The records of the runs that a workflow of Snakemake asks for."""

    def __init__(self, workflow: Any) -> None:
        self.workflow = workflow
        self.files: set[str] = set()  # that decided which runs are made
        self.kept: list[Run] = []  # though one of their inputs is newer
        self.why: dict[str, str] = {}  # records that are made -> ": " and what is not as planned

    def decide(self, run: Run, made_from: list[str]) -> list[str]:
        """Decide whether Snakemake makes a run. Gives the inputs that it is to compare with.

        A record that is missing or stale is forced. One that is as planned is kept, also where an
        input is newer or missing, unless an input is made again or a user forces it. One that
        cannot be read is left to Snakemake, which takes it for done. Snakemake's notes of another
        record are deleted, so that it does not go by them.
        """
        from snakemake.io import IOFile, ancient

        record = files.record_file(run.study, run.id)
        self.files |= {str(record), *made_from}
        state, why = status.of_run(run)
        forced = self.workflow.dag.forcefiles
        if state in ("to do", "stale"):
            forced.add(str(record))
            self.why[str(record)] = f": {why}"
        if state != "done" or str(record) in forced:
            return made_from
        missing = not all(Path(path).exists() for path in made_from)
        notes = self.workflow.persistence
        noted = notes.params(IOFile(str(record)))
        if missing or (noted is not None and repr(run.parameters) not in noted):
            notes.cleanup_metadata(IOFile(str(record)))  # they are of another record
        if missing:
            return []
        made = record.stat().st_mtime
        newer = [path for path in made_from if Path(path).stat().st_mtime > made]
        if newer:
            self.kept.append(run)
        return [ancient(path) if path in newer else path for path in made_from]

    def require_followed(self) -> None:
        """Raise `UserError` where runs that were kept are stale by now.

        Snakemake does not make them where it makes one of their `ancient` inputs anew.
        """
        stale = [run.id for run in self.kept if status.of_run(run)[0] == "stale"]
        if stale:
            raise UserError(
                f"data or a network were made anew, and {len(stale)} runs are to follow, for "
                f"example {stale[0]}: the same command makes them"
            )

    def makes(self, run: Run) -> bool:
        """Whether a run is made because its record, after `decide`, asks for it."""
        return str(files.record_file(run.study, run.id)) in self.why

    def came_from_elsewhere(self, path: Path) -> bool:
        """Whether a file is there that Snakemake has no notes of: it was imported, for example."""
        from snakemake.io import IOFile

        if not path.exists():
            return False
        return self.workflow.persistence.metadata(IOFile(str(path))) is None
