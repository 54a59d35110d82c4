"""dvc.yaml repeats no more of params.yaml than DVC needs, and nothing that is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from twf import files, params, study
from twf.data import registry

PROJECT = Path(__file__).parents[2]
STAGES = yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"]
PARAMS = params.load(PROJECT / "params.yaml")


def test_each_archive_of_the_registry_has_a_stage():
    assert STAGES["archive"]["foreach"] == list(registry.load()), (
        "mend stages.archive.foreach in dvc.yaml"
    )


def made_from(dataset: params.Dataset) -> str:
    """What a data set changes with: its archive, a user's file, or the code that draws it."""
    if dataset.reader == "official":
        return str(files.archive_folder(dataset.archive))
    return getattr(dataset, "file", f"src/twf/data/{dataset.reader}.py")


def test_each_data_set_has_a_stage_that_depends_on_what_it_is_made_from():
    expected = {name: made_from(dataset) for name, dataset in PARAMS.datasets.items()}
    assert STAGES["data"]["foreach"] == expected, "mend stages.data.foreach in dvc.yaml"


def weights(source: params.Source) -> str:
    """A source's published weights, or the archive that they are in."""
    archive = registry.of_file(Path(source.weights))
    return source.weights if archive is None else str(files.archive_folder(archive))


def test_each_source_has_a_stage_that_depends_on_its_input() -> None:
    expected = {
        name: weights(source) if source.weights else str(files.data_file(source.data))
        for name, source in PARAMS.sources.items()
    }
    assert STAGES["pretrain"]["foreach"] == expected, "mend stages.pretrain.foreach in dvc.yaml"


def test_each_study_has_a_stage_for_its_report() -> None:
    names = STAGES["report"]["matrix"]["study"]
    assert names == list(PARAMS.studies), "mend stages.report.matrix.study in dvc.yaml"


def test_the_report_stage_keeps_all_that_is_made_of_records() -> None:
    study_name = "${item.study}"
    kept = [Path(next(iter(out))) for out in STAGES["report"]["outs"]]
    for made in (
        files.table_file(study_name, "main.x", "csv"),
        files.comparison_file(study_name, "csv"),
        files.claims_file(study_name, "csv"),
        *files.search_files(study_name),
        files.statement_file(study_name),
        files.model_card_file(study_name, "x"),
        files.report_file(study_name),
    ):
        assert made in kept or made.parent in kept


@pytest.mark.parametrize("name", PARAMS.studies)
def test_each_study_has_a_stage_for_its_runs_that_depends_on_their_inputs(name: str) -> None:
    winners = PARAMS.studies[name].winners
    plan = study.expand(_without_winners(), name)  # they change no input
    inputs = [files.data_file(d) for d in plan.data]
    inputs += [files.checkpoint_file(s) for s in plan.sources]
    if winners is not None:
        inputs.append(Path(winners).parent)
    assert f"runs-{name}" in STAGES, f"add a stage runs-{name} to dvc.yaml, like runs-demo"
    stage = STAGES[f"runs-{name}"]
    assert set(stage["deps"]) == {str(path) for path in inputs}, f"mend runs-{name} in dvc.yaml"
    assert stage["params"][-1] == f"studies.{name}"
    assert [next(iter(out)) for out in stage["outs"]] == [
        f"results/{name}/runs",
        str(files.runs_file(name)),
    ]


def _without_winners() -> params.Params:
    """The parameters as if no study took a search's winners, which may still be to find."""
    studies = {n: s.model_copy(update={"winners": None}) for n, s in PARAMS.studies.items()}
    return PARAMS.model_copy(update={"studies": studies})
