"""dvc.yaml repeats no more of params.yaml than DVC needs, and nothing that is out of date."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from twf import files, params, study

PROJECT = Path(__file__).parents[2]
STAGES = yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"]
PARAMS = params.load(PROJECT / "params.yaml")


def test_each_source_has_a_stage_that_depends_on_its_input() -> None:
    expected = {
        name: source.weights or str(files.data_file(source.data))
        for name, source in PARAMS.sources.items()
    }
    assert STAGES["pretrain"]["foreach"] == expected, "mend stages.pretrain.foreach in dvc.yaml"


def test_each_study_has_a_stage_for_its_report() -> None:
    names = STAGES["report"]["matrix"]["study"]
    assert names == list(PARAMS.studies), "mend stages.report.matrix.study in dvc.yaml"


def test_the_report_stage_keeps_the_tables_and_what_is_compared_with_the_paper() -> None:
    study_name = "${item.study}"
    made = ["results/${item.study}/tables"]
    for file in (files.comparison_file, files.claims_file):
        made += [str(file(study_name, ending)) for ending in files.COMPARISON_FORMATS]
    made.append(str(files.report_file(study_name)))
    assert [next(iter(out)) for out in STAGES["report"]["outs"]] == made


@pytest.mark.parametrize("name", PARAMS.studies)
def test_each_study_has_a_stage_for_its_runs_that_depends_on_their_inputs(name: str) -> None:
    plan = study.expand(PARAMS, name)
    inputs = [files.data_file(d) for d in plan.data]
    inputs += [files.checkpoint_file(s) for s in plan.sources]
    assert f"runs-{name}" in STAGES, f"add a stage runs-{name} to dvc.yaml, like runs-demo"
    stage = STAGES[f"runs-{name}"]
    assert set(stage["deps"]) == {str(path) for path in inputs}, f"mend runs-{name} in dvc.yaml"
    assert stage["params"][-1] == f"studies.{name}"
    assert [next(iter(out)) for out in stage["outs"]] == [
        f"results/{name}/runs",
        str(files.runs_file(name)),
    ]
