"""dvc.yaml from params.yaml: DVC wants the inputs of every stage written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from twf import files
from twf.data import registry
from twf.study import expand
from twf.study.params import Dataset, Params, Source

HEAD = """\
# Written by `twf stages`, from params.yaml: call it again after a change of data sets, sources or
# studies; anything else is in src/twf/engines/stages.py.
#
# DVC remembers what Snakemake makes: each stage has it make its targets, and keeps them.
#
#   dvc repro report@demo     the demo study        dvc repro report@paper     the paper's
#
# A stage's `params` say when DVC looks again; which runs must then be done, Snakemake decides.
"""
PARAMS = ["datasets", "sources", "benchmarks", "fidelity"]  # of all runs, beside their study's
FROM_GIT = "overnight"  # of the studies whose records git has, the one whose report DVC makes


def is_in_git(study: str) -> bool:
    """Whether git has a study's records, as .gitignore says: DVC keeps no file that git has."""
    return study == "measured" or study.startswith(("overnight", "corners"))


def dvc_yaml(params: Params) -> str:
    """The text of dvc.yaml."""
    return HEAD + yaml.safe_dump({"stages": stages(params)}, sort_keys=False, width=100)


def stages(params: Params) -> dict[str, Any]:
    """Its stages: archives, data sets, sources, and the runs and the report of each study."""
    each = "${key}"
    found = {
        "archive": {
            "foreach": list(registry.load()),
            "do": {
                "desc": "The official archive of ${item}",
                "cmd": f"twf make {files.receipt_file('${item}')}",
                "outs": _kept(files.archive_folder("${item}")),
            },
        },
        "data": {
            "foreach": {name: _made_from(dataset) for name, dataset in params.datasets.items()},
            "do": {
                "desc": f"The arrays of {each}",
                "cmd": f"twf make {files.data_file(each)}",
                "deps": ["${item}"],
                "params": [f"datasets.{each}"],
                "outs": _kept(files.data_file(each)),
            },
        },
        "pretrain": {
            "foreach": {name: _trained_from(source) for name, source in params.sources.items()},
            "do": {
                "desc": f"The network pretrained on {each}",
                "cmd": f"twf make {files.checkpoint_file(each)}",
                "deps": ["${item}"],
                "params": [f"sources.{each}", "datasets"],
                "outs": _kept(files.checkpoint_file(each)),
            },
        },
    }
    names = [name for name in params.studies if name == FROM_GIT or not is_in_git(name)]
    found |= {f"runs-{name}": _runs(params, name) for name in names}
    study = "${item.study}"
    folders = (Path(files.COMPARISON).parent, files.FIGURES)
    return found | {
        "report": {
            "matrix": {"study": names},
            "desc": "The tables, metrics, figures, the statement and the report",
            # a comment, with which the command changes: so DVC asks Snakemake again
            "cmd": f"twf make {files.report_file(study)} # tables {files.TABLES_VERSION}",
            "deps": [str(files.runs_file(study)), str(files.PRINTED)],
            "params": [*PARAMS, f"studies.{study}"],
            "outs": _kept(
                *(str(folder).format(study=study) for folder in folders),
                files.statement_file(study),
                files.report_file(study),
            ),
            "metrics": _kept(files.metrics_file(study)),
        }
    }


def _runs(params: Params, name: str) -> dict[str, Any]:
    """The stage of a study's records; of one that git has, of their table alone."""
    best, runs = params.studies[name].best_hyperparameters, files.record_file(name, "x").parent
    stage = {"desc": f"Every run of the study {name}, a record each"}
    if is_in_git(name):
        stage = {"desc": f"The records of the study {name}, which git has, put together"}
        deps, outs = [*filter(None, [best]), runs], [files.runs_file(name)]
    else:
        # as if no search were still to be done: what one finds changes no input
        known = {
            k: s.model_copy(update={"best_hyperparameters": None})
            for k, s in params.studies.items()
        }
        plan = expand(params.model_copy(update={"studies": known}), name)
        searches = {files.search_files(other)[-1] for other in params.studies}
        deps = []
        if best:  # DVC has the folder of a study's tables as a whole
            deps.append(Path(best).parent if Path(best) in searches else Path(best))
        deps += [files.data_file(data) for data in plan.data]
        deps += [files.checkpoint_file(source) for source in plan.sources]
        outs = [runs, files.runs_file(name)]
    return stage | {
        "cmd": f"twf make {files.runs_file(name)}",
        "deps": [str(path) for path in deps],
        "params": [*PARAMS, f"studies.{name}"],
        "outs": _kept(*outs),
    }


def _kept(*paths: Path | str) -> list[dict[str, Any]]:
    """Outputs that DVC does not remove before it calls Snakemake."""
    return [{str(path): {"persist": True}} for path in paths]


def _made_from(dataset: Dataset) -> str:
    """What a data set changes with: its archive, a user's file, or the code that draws it."""
    if dataset.reader == "official":
        return str(files.archive_folder(dataset.archive))
    return dataset.file if dataset.reader == "archive" else f"src/twf/data/{dataset.reader}.py"


def _trained_from(source: Source) -> str:
    """A source's data, its published weights, or the archive that these are in."""
    if source.weights is None:
        return str(files.data_file(source.data))
    archive = registry.of_file(Path(source.weights))
    return source.weights if archive is None else str(files.archive_folder(archive))
