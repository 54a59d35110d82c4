"""A record alone says whether its run is made: not its time, its inputs' or Snakemake's notes."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from miniature import (
    ER,
    FINETUNE,
    REPORT,
    TWF,
    call,
    change_params,
    change_twf,
    checkout,
    copied,
    idle,
    jobs,
    miniature,
    pretend_outputs,
)
from processes import cut_power, start, until

from twf import files, study
from twf.results import record
from twf.study import reading

FROM_TEXTURES = "split-digits.twf.16.from-textures.s0"
LETTERS = files.checkpoint_file("letters")

pytestmark = pytest.mark.slow


def path_of(run: str) -> Path:
    return files.record_file("demo", run)


@pytest.fixture(scope="session")
def settled(prepared) -> Path:
    """A checkout with pretended outputs, of which Snakemake has notes; runs need images of both."""

    def make(folder: Path) -> None:
        values = miniature()
        values["studies"]["demo"]["experiments"]["main"]["probes"] = True
        checkout(folder, values)
        pretend_outputs(folder)
        call(folder, "snakemake", "--touch", "--forceall", "--cores", "1", REPORT, "--quiet")

    return prepared("settled", make)


@pytest.fixture
def project(settled: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return copied(settled, tmp_path)


def made_anew(folder: Path, target: str = REPORT) -> dict[str, str]:
    """The runs that Snakemake would make, and why."""
    said = call(folder, "snakemake", target, "--dry-run")
    return dict(re.findall(r"run (\S+) of study demo(?:: (.*))?$", said, flags=re.M))


def put_record(folder: Path, run: str, **hyperparameters: float) -> None:
    """Put a record of TwF with other hyperparameters in place of a run's, of the same time."""
    path, text = folder / path_of(run), (folder / "params.yaml").read_text()
    time = path.stat().st_mtime_ns
    change_twf(folder, **hyperparameters)
    other = study.expand(reading.load(folder / "params.yaml"), "demo").runs[run]
    (folder / "params.yaml").write_text(text)
    (row,) = record.read(path).to_pylist()
    made = {"parameters": other.values}
    record.write(path, row | {"digest": other.digest, "provenance": json.dumps(made)})
    os.utime(path, ns=(time, time))


def test_a_record_of_other_parameters_is_made_anew_and_stays_until_there_is_another(
    project: Path,
) -> None:
    """Whoever put it there. The pretended network cannot be read: so the run fails."""
    assert idle(project)
    put_record(project, TWF, lambda_fp=0.5)
    before = (project / path_of(TWF)).read_bytes()
    assert made_anew(project) == {TWF: "lambda_fp: 0.5 -> 0.05"}
    said = call(project, "snakemake", str(path_of(TWF)), "--cores", "1", fails=True)
    assert f"run {TWF} of study demo: lambda_fp: 0.5 -> 0.05" in said
    assert (project / path_of(TWF)).read_bytes() == before


def test_a_changed_parameter_is_said_in_few_words(project: Path) -> None:
    change_twf(project, lambda_fp=0.5)
    why = "lambda_fp: 0.05 -> 0.5"
    assert made_anew(project) == {TWF: why, FROM_TEXTURES: why}
    assert len(call(project, "snakemake", "--dry-run", REPORT)) < 10_000


def test_a_record_of_the_plan_is_left_alone_though_notes_say_otherwise(project: Path) -> None:
    for run in (TWF, FROM_TEXTURES):
        put_record(project, run, lambda_fp=0.5)
    change_twf(project, lambda_fp=0.5)
    needed = jobs(project, REPORT)
    assert "run" not in needed
    assert needed["collect"] == 1  # what was made of them is of other records


def test_what_was_interrupted_and_is_taken_back_is_not_made(project: Path) -> None:
    text = (project / "params.yaml").read_text()
    change_twf(project, lambda_fp=0.5)
    process = start(project, "snakemake", str(path_of(TWF)), "--cores", "1")
    begun = project / ".snakemake/incomplete"
    until(lambda: any(begun.iterdir()), "a job that has begun")
    cut_power(project, process)
    call(project, "snakemake", "--unlock")
    assert any(begun.iterdir())
    (project / "params.yaml").write_text(text)
    assert made_anew(project) == {} and idle(project)


def test_a_studys_note_is_put_into_its_tables_and_trains_nothing(project: Path) -> None:
    change_params(project, lambda values: values["studies"]["demo"].update(note="Other words."))
    needed = jobs(project, REPORT)
    assert needed["table"] > 1 and "run" not in needed


def test_the_papers_numbers_are_put_into_tables_and_figures_and_train_nothing(
    project: Path,
) -> None:
    path = project / files.PRINTED
    path.write_text(path.read_text().replace(".", ".1"))
    needed = jobs(project, REPORT)
    assert {"table", "figures", "compare"} <= set(needed) and "run" not in needed


def test_a_missing_record_is_made_though_all_that_follows_is_there(project: Path) -> None:
    (project / path_of(ER)).unlink()
    assert made_anew(project) == {ER: "no record"}


def test_in_a_clone_only_missing_runs_are_made(project: Path) -> None:
    """Records are there, and imported networks that are newer; no data, and no notes."""
    shutil.rmtree(project / ".snakemake")
    for path in (project / LETTERS.parent).iterdir():
        path.touch()
    assert jobs(project, str(files.runs_file("demo"))) == {}
    for path in (project / "data").iterdir():
        path.unlink()
    (project / path_of(FINETUNE)).unlink()
    (project / files.runs_file("demo")).unlink()
    runs = str(files.runs_file("demo"))
    assert jobs(project, runs) == {"data": 2, "run": 1, "collect": 1, "total": 4}
    assert made_anew(project, runs) == {FINETUNE: "no record"}


def test_a_network_trained_anew_is_followed_by_its_runs(project: Path) -> None:
    text = (project / "params.yaml").read_text()
    (project / "params.yaml").write_text(text.replace("lr: 0.1\n", "lr: 0.2\n", 1))
    assert jobs(project, REPORT)["pretrain"] == 1
    assert set(made_anew(project)) == {FINETUNE, ER, TWF}


def test_a_measured_time_that_is_older_than_an_input_repeats_nothing(project: Path) -> None:
    """Snakemake takes the older one of a record and its measurement for the job's time."""
    tsv = project / f"logs/demo/runs/{FINETUNE}.tsv"
    of_network = project / "logs/pretrain/letters.tsv"
    now = (project / path_of(FINETUNE)).stat().st_mtime
    for path in (tsv, of_network):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("s\n1\n")
        os.utime(path, (now - 100, now - 100))
    for path, later in ((files.data_file("letters"), 1), (LETTERS, 2), (path_of(FINETUNE), 3)):
        os.utime(project / path, (now + later, now + later))
    assert jobs(project, str(path_of(FINETUNE))) == {}


def test_what_was_removed_of_a_jobs_files_is_made_again(project: Path) -> None:
    """Snakemake looks at what other jobs read alone, and DVC would share the gap."""
    study_files = [
        (files.table_file("demo", "main.split-digits", "md"), "table"),
        (files.comparison_file("demo", "md"), "compare"),
        (files.metrics_file("demo"), "compare"),
        (files.statement_file("demo"), "report"),
    ]
    for path, rule in study_files:
        content = (project / path).read_bytes()
        (project / path).unlink()
        assert jobs(project, REPORT)[rule] == 1
        (project / path).write_bytes(content)
        os.utime(project / path, (1, 1))


def test_runs_that_are_newly_stale_are_asked_for(project: Path) -> None:
    """Here the record is older than the data from which it was made, and these change."""
    record_file, data = path_of(FINETUNE), files.data_file("digits")
    (row,) = record.read(project / record_file).to_pylist()
    made = json.loads(row["provenance"]) | {"inputs": {"train_fingerprint": ""}}
    record.write(project / record_file, row | {"provenance": json.dumps(made)})
    now = (project / record_file).stat().st_mtime + 1
    os.utime(project / data, (now, now))
    words = ("snakemake", str(record_file), "--cores", "1")
    assert "Nothing to be done" in call(project, *words)
    said = call(project, *words, "--forcerun", str(data), fails=True)
    assert "data" in said and FINETUNE in said
    assert made_anew(project, str(record_file)) == {FINETUNE: f"another {data}"}


def test_a_refused_archive_leaves_the_images_prepared_from_the_one_before(project: Path) -> None:
    blobs = {"title": "Blobs", "reader": "archive", "file": "blobs.npz", "classes": 2, "size": 16}
    digits = reading.load(project / "params.yaml").datasets["digits"]
    blobs["augmentation"] = digits.augmentation.model_dump(mode="json")
    change_params(project, lambda v: v["datasets"].update(blobs=blobs))
    images, labels = np.zeros((4, 16, 16, 3), np.uint8), np.arange(4) % 2

    def write(**arrays: np.ndarray) -> None:
        both = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
        np.savez(project / "blobs.npz", **both | arrays)

    write()
    target, made = "data/blobs.safetensors", project / "data/blobs.safetensors"
    call(project, "snakemake", target, "--cores", "1")
    before = made.read_bytes()
    write(y_train=labels + 1)
    call(project, "snakemake", target, "--cores", "1", fails=True)
    assert made.read_bytes() == before
    write(x_train=images + 1)
    call(project, "snakemake", target, "--cores", "1")
    assert made.read_bytes() != before


def test_what_is_lacking_is_one_message(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a record is missing, and where one is there that is not the plan's."""
    put_record(project, TWF, lambda_fp=0.5)
    (project / "data/digits.safetensors").write_bytes(b"torn")
    monkeypatch.setenv("TWF_MIRROR", str(project / "nowhere"))
    wrong_study = "results/dmo/report.html"
    for words, named in (
        ((REPORT,), "data/digits.safetensors"),
        ((), "TWF_MIRROR"),
        ((wrong_study,), "no study 'dmo'"),
    ):
        said = call(project, "snakemake", *words, "--dry-run", fails=True)
        assert said.count("error: ") == said.count(named) == 1
        assert "Traceback" not in said and "Exception" not in said
