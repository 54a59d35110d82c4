"""dvc.yaml has what params.yaml says, and DVC keeps all that is made and that git does not have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from project import PROJECT

from twf import files
from twf.engines.stages import is_in_git, stages
from twf.study import reading

PARAMS = reading.load(PROJECT / "params.yaml")


def test_what_params_add_has_stages_with_its_inputs(tiny_values: dict[str, Any]) -> None:
    found = stages(reading.check(tiny_values))
    assert found["data"]["foreach"]["target"] == "archives/target.npz"
    assert found["pretrain"]["foreach"] == {"origin": "data/origin.safetensors"}
    assert {"data/target.safetensors", "checkpoints/origin.safetensors"} < {
        *found["runs-tiny"]["deps"]
    }
    assert found["runs-tiny"]["params"][-1] == "studies.tiny"
    assert found["report"]["matrix"] == {"study": ["tiny"]}


def test_a_study_with_what_a_search_finds_depends_on_it_before_it_is_there() -> None:
    assert "results/paper-search/tables" in stages(PARAMS)["runs-paper-tuned"]["deps"]


def test_a_file_of_ones_own_with_hyperparameters_is_a_dependency_alone(tiny_values) -> None:
    """Its folder may be the whole project."""
    tiny_values["studies"]["tiny"]["best_hyperparameters"] = "best.yaml"
    assert "best.yaml" in stages(reading.check(tiny_values))["runs-tiny"]["deps"]


def test_the_report_stage_keeps_all_that_is_made_of_records() -> None:
    study = "${item.study}"
    kept = [Path(next(iter(out))) for out in stages(PARAMS)["report"]["outs"]]
    for made in (
        files.table_file(study, "main.x", "csv"),
        files.comparison_file(study, "csv"),
        files.claims_file(study, "csv"),
        files.gains_file(study, "csv"),
        files.order_file(study, "csv"),
        *files.search_files(study),
        files.figure_index(study),
        files.statement_file(study),
        files.report_file(study),
    ):
        assert made in kept or made.parent in kept


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
    in_git = [name for name in PARAMS.studies if is_in_git(name)]
    kept = [str(files.record_file(name, "x.s0")) for name in in_git]
    kept += [f"results/{name}/weights/x.safetensors" for name in in_git]
    kept += [str(files.search_files(name)[2]) for name in in_git if name.endswith("-search")]
    assert sorted(found) == sorted(kept)
