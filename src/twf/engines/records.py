"""Which runs Snakemake makes: those whose records are missing or not the plan's, and no others.

Snakemake goes by modification times and by its notes of earlier jobs. Both say nothing of a record
that git, DVC or a user has put there. The record itself does: `twf.results.status` reads it for
Snakemake as it does for `twf plan`. So do the headers of data sets and networks, which
`twf.data.inputs` reads.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twf import files
from twf.data import inputs
from twf.errors import UserError
from twf.results import status
from twf.study import Plan, Run
from twf.study.params import Params


class Records:
    """The records, networks and data sets that a workflow of Snakemake asks for."""

    def __init__(self, workflow: Any, params: Params) -> None:
        self.workflow = workflow
        self.params = params
        self.files: set[str] = set()  # that decided which runs are made
        self.stale: set[str] = set()  # files that are made anew
        # what is kept though one of its inputs is newer, and whether it has become stale
        self.kept: dict[str, Callable[[], bool]] = {}
        self.why: dict[str, str] = {}  # records that are made -> ": " and what is not as planned

    def force_run_if_stale(self, run: Run, made_from: list[str]) -> list[str]:
        """Have Snakemake make a run whose record is missing or stale. Gives the inputs to compare.

        A record that is as planned is kept, also where an input is newer or missing, unless an
        input is made again or a user forces it. One that cannot be read is left to Snakemake, which
        takes it for done. Snakemake's notes of another record are deleted, so that it does not go
        by them.
        """
        from snakemake.io import IOFile, ancient

        record = files.record_file(run.study, run.id)
        self.files |= {str(record), *made_from}
        state, why = status.run_state(self.params, run)
        forced = self.workflow.dag.forcefiles
        if state in ("to do", "stale"):
            forced.add(str(record))
            self.why[str(record)] = f": {why}"
        if state == "stale":
            self.stale.add(str(record))
        if state != "done" or str(record) in forced:
            return made_from
        missing = not all(Path(path).exists() for path in made_from)
        notes = self.workflow.persistence
        noted = notes.params(IOFile(str(record)))
        if missing or (noted is not None and repr(run.parameters) not in noted):
            notes.cleanup_metadata(IOFile(str(record)))  # they are of another record
        if missing:
            return []
        newer = _newer(made_from, record, Path(f"logs/{run.study}/runs/{run.id}.tsv"))
        if newer:
            self.kept[run.id] = lambda: status.run_state(self.params, run)[0] == "stale"
        return [ancient(path) if path in newer else path for path in made_from]

    def force_data_if_stale(self, name: str, parameters: str) -> None:
        """Have Snakemake make a data set that is stale."""
        held = inputs.data(name, self.params.datasets[name])
        self._force_if_stale(files.data_file(name), held, parameters)

    def force_network_if_stale(
        self, name: str, parameters: tuple[str, str | None], made_from: list[str]
    ) -> list[str]:
        """Have Snakemake make a network that is stale. Gives the inputs to compare it with.

        `parameters` are its recipe and its data's augmentation, which older headers leave out. One
        that is as asked is kept, also where an input is newer, unless that is made again or a user
        forces it; and one that came from elsewhere, also where its data are missing: they may be
        prepared for something else.
        """
        from snakemake.io import IOFile, ancient

        path, held = files.checkpoint_file(name), inputs.network(self.params, name)
        kept = self._force_if_stale(path, held, parameters, parameters[1])
        there = all(Path(file).exists() for file in made_from)
        if held.changes or not path.exists():
            return made_from
        if not there:
            noted = self.workflow.persistence.metadata(IOFile(str(path))) is not None
            return made_from if noted else []
        newer = _newer(made_from, path, Path(f"logs/pretrain/{name}.tsv")) if kept else []
        if newer:
            self.kept[str(path)] = lambda: bool(inputs.network(self.params, name).changes)
        return [ancient(file) if file in newer else file for file in made_from]

    def _force_if_stale(
        self, path: Path, held: inputs.Held, parameters: Any, augmentation: str | None = None
    ) -> bool:
        """Force a file that is stale; whether it is known to be as asked.

        It is if its header says all, or all but of its data, and Snakemake's notes have the
        `augmentation`. Then notes of other parameters are deleted, so that it does not go by them.
        """
        from snakemake.io import IOFile

        if not path.exists():
            return False
        self.files.add(str(path))
        if held.changes:
            self.workflow.dag.forcefiles.add(str(path))
            self.stale.add(str(path))
        if str(path) in self.workflow.dag.forcefiles:
            return False
        notes = self.workflow.persistence
        noted = notes.params(IOFile(str(path))) or []
        of_data = all(key.startswith("dataset.") for key in held.unsaid)
        if held.unsaid and not (of_data and any(repr(augmentation) in each for each in noted)):
            return False
        if noted and repr(parameters) not in noted:
            notes.cleanup_metadata(IOFile(str(path)))
        return True

    def force_what_is_incomplete(self, plan: Plan) -> None:
        """Have Snakemake make a job again some of whose files were removed.

        By itself, it looks at those files alone that another job reads.
        """
        study = plan.study
        parts = (files.comparison_file, files.claims_file, files.gains_file)
        compared = [part(study, of) for part in parts for of in files.COMPARISON_FORMATS]
        compared += [files.order_file(study, "parquet"), files.order_file(study, "csv")]
        jobs = {str(compared[0]): [*compared, files.metrics_file(study)]}
        for name in plan.tables:
            table = [files.table_file(study, name, of) for of in files.TABLE_FORMATS]
            jobs[str(table[0])] = table
        report = files.report_file(study)
        jobs[str(report)] = [report, files.statement_file(study)]
        if plan.search:
            jobs[str(files.search_files(study)[0])] = [*files.search_files(study)]
        if drawn := _figures(study):
            jobs[str(drawn[0].parent)] = drawn
        for output, made in jobs.items():
            there = [path.exists() for path in made]
            if any(there) and not all(there):
                self.workflow.dag.forcefiles.add(output)

    def require_followed(self) -> None:
        """Raise `UserError` where something is stale still.

        With `--touch`, Snakemake makes nothing. Else it makes nothing that was kept where it makes
        one of its `ancient` inputs anew.
        """
        if self.workflow.touch and self.stale:
            raise UserError(
                f"{len(self.stale)} files are stale as before, for example {min(self.stale)}: the "
                "same command without --touch makes them"
            )
        stale = [name for name, is_stale in self.kept.items() if is_stale()]
        if stale:
            raise UserError(
                f"data or a network were made anew, and {len(stale)} runs or networks are to "
                f"follow, for example {stale[0]}: the same command makes them"
            )

    def makes(self, run: Run) -> bool:
        """Whether a run is made because its record, after `force_run_if_stale`, asks for it."""
        return str(files.record_file(run.study, run.id)) in self.why


def _figures(study: str) -> list[Path]:
    """The files of the figures that a study's list of them has; none where it cannot be read."""
    index = files.figure_index(study)
    try:
        rows = list(csv.DictReader(index.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError, csv.Error):
        return []
    drawn = [row["figure"] for row in rows if row.get("figure")]
    return [files.figure_file(study, name, of) for name in drawn for of in files.FIGURE_FORMATS]


def _newer(paths: list[str], *than: Path) -> list[str]:
    """Those that Snakemake takes for newer than a job's output and the measurement of its time."""
    time = min(path.stat().st_mtime for path in than if path.exists())
    return [path for path in paths if Path(path).stat().st_mtime > time]
