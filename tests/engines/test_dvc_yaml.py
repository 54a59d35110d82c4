"""dvc.yaml repeats no more of params.yaml than DVC needs, and nothing that is out of date."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from project import PROJECT

from twf import files, study
from twf.data import registry
from twf.study import params, reading

DVC = yaml.safe_load((PROJECT / "dvc.yaml").read_text())
STAGES = DVC["stages"]
PARAMS = reading.load(PROJECT / "params.yaml")
# the studies whose records are committed: DVC keeps no file that git has
IN_GIT = [n for n in PARAMS.studies if n == "measured" or n.startswith(("overnight", "corners"))]
STUDIES = [name for name in PARAMS.studies if name not in IN_GIT]
FROM_GIT = "overnight"  # whose report DVC makes of those records


def made_from(dataset: params.Dataset) -> str:
    """What a data set changes with: its archive, a user's file, or the code that draws it."""
    if dataset.reader == "official":
        return str(files.archive_folder(dataset.archive))
    return getattr(dataset, "file", f"src/twf/data/{dataset.reader}.py")


def trained_from(source: params.Source) -> str:
    """A source's data, its published weights, or the archive that these are in."""
    if not source.weights:
        return str(files.data_file(source.data))
    archive = registry.of_file(Path(source.weights))
    return source.weights if archive is None else str(files.archive_folder(archive))


EACH = {
    "archive": list(registry.load()),
    "data": {name: made_from(dataset) for name, dataset in PARAMS.datasets.items()},
    "pretrain": {name: trained_from(source) for name, source in PARAMS.sources.items()},
}


@pytest.mark.parametrize("stage", EACH)
def test_each_archive_data_set_and_source_has_a_stage_with_its_input(stage: str) -> None:
    assert STAGES[stage]["foreach"] == EACH[stage], f"mend stages.{stage}.foreach in dvc.yaml"


def test_each_study_has_a_stage_for_its_report() -> None:
    names = STAGES["report"]["matrix"]["study"]
    assert set(names) == {*STUDIES, FROM_GIT}, "mend stages.report.matrix.study in dvc.yaml"


def test_the_report_stage_keeps_all_that_is_made_of_records() -> None:
    study_name = "${item.study}"
    stage = STAGES["report"]
    assert [str(files.metrics_file(study_name))] == [next(iter(out)) for out in stage["metrics"]]
    kept = [Path(next(iter(out))) for out in stage["outs"]]
    for made in (
        files.table_file(study_name, "main.x", "csv"),
        files.comparison_file(study_name, "csv"),
        files.claims_file(study_name, "csv"),
        files.gains_file(study_name, "csv"),
        *files.search_files(study_name),
        files.statement_file(study_name),
        files.model_card_file(study_name, "x"),
        files.report_file(study_name),
    ):
        assert made in kept or made.parent in kept


@pytest.mark.parametrize("name", STUDIES)
def test_each_study_has_a_stage_for_its_runs_that_depends_on_their_inputs(name: str) -> None:
    best = PARAMS.studies[name].best_hyperparameters
    plan = study.expand(_without_searches(), name)  # they change no input
    inputs = [files.data_file(d) for d in plan.data]
    inputs += [files.checkpoint_file(s) for s in plan.sources]
    if best is not None:
        inputs.append(Path(best).parent)
    assert f"runs-{name}" in STAGES, f"add a stage runs-{name} to dvc.yaml, like runs-demo"
    stage = STAGES[f"runs-{name}"]
    assert set(stage["deps"]) == {str(path) for path in inputs}, f"mend runs-{name} in dvc.yaml"
    assert stage["params"][-1] == f"studies.{name}"
    assert [next(iter(out)) for out in stage["outs"]] == [
        f"results/{name}/runs",
        str(files.runs_file(name)),
    ]


def test_dvc_keeps_what_is_made_of_records_that_git_has_and_not_the_records() -> None:
    stage = STAGES[f"runs-{FROM_GIT}"]
    best = PARAMS.studies[FROM_GIT].best_hyperparameters
    assert stage["deps"] == [best, str(files.record_file(FROM_GIT, "x").parent)]
    assert stage["params"][-1] == f"studies.{FROM_GIT}"
    assert [next(iter(out)) for out in stage["outs"]] == [str(files.runs_file(FROM_GIT))]


def test_git_has_the_records_of_what_was_measured_and_no_other_results(tmp_path: Path) -> None:
    shutil.copy2(PROJECT / ".gitignore", tmp_path)
    made = [
        path
        for name in PARAMS.studies
        for path in (
            files.record_file(name, "x.s0"),
            files.runs_file(name),
            files.report_file(name),
            files.table_file(name, "main.x", "csv"),
            *files.search_files(name),
            Path(f"results/{name}/weights/x.safetensors"),
        )
    ]
    for path in made:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    words = ("git", "-C", str(tmp_path))
    subprocess.run([*words, "init", "--quiet"], check=True)
    listed = [*words, "ls-files", "--others", "--exclude-standard", "results"]
    found = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    kept = [str(files.record_file(name, "x.s0")) for name in IN_GIT]
    kept += [f"results/{name}/weights/x.safetensors" for name in IN_GIT]
    assert sorted(found) == sorted([*kept, str(files.search_files("overnight-search")[2])])


def _without_searches() -> params.Params:
    """The parameters as if no study took the best hyperparameters of a search, still to be done."""
    studies = {
        n: s.model_copy(update={"best_hyperparameters": None}) for n, s in PARAMS.studies.items()
    }
    return PARAMS.model_copy(update={"studies": studies})
