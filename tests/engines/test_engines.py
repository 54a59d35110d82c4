"""Snakemake and DVC keep their promises to each other, on a miniature of the demo study."""

import hashlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import official
import pandas as pd
import pytest
from miniature import (
    CACHES,
    ER,
    FINETUNE,
    PROJECT,
    REPORT,
    TWF,
    call,
    change_params,
    change_twf,
    commit,
    copied,
    ended,
    idle,
    jobs,
    outputs,
    start,
    the_process,
    until,
    written,
)
from support import files_with_keys

from twf import files

METRICS, RUNS = str(files.metrics_file("demo")), str(files.runs_file("demo"))
TEXTURES = "split-digits.twf.16.from-textures.s0"
RECORDS = {name: str(files.record_file("demo", name)) for name in (FINETUNE, ER, TWF, TEXTURES)}
OF_RECORDS = {"collect": 1, "report": 1}

pytestmark = pytest.mark.slow


def snakemake(folder: Path, *words: str, fails: bool = False) -> str:
    return call(folder, "snakemake", REPORT, "--cores", "2", *words, fails=fails)


def repro(folder: Path) -> str:
    return call(folder, "dvc", "repro", "report@demo")


def trains(folder: Path, *words: str) -> dict[str, int]:
    """How many jobs of each rule Snakemake would do, but for those of seconds at the end."""
    done = jobs(folder, *words)
    return {rule: n for rule, n in done.items() if rule not in {*OF_RECORDS, "total"}}


def records(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """The runs whose records were written."""
    return {Path(name).stem for name in written(before, after) if "/runs/" in name}


def made_of_all(before: dict[str, int], after: dict[str, int]) -> bool:
    """Whether all that is made of a study's records was written too."""
    return {RUNS, METRICS, REPORT} <= written(before, after)


def longer(values: dict[str, Any]) -> None:
    """Another recipe of the network that three of the runs start from."""
    letters = values["sources"]["letters"]
    letters["pretraining"] = letters["pretraining"] | {"epochs": 2}  # sources share theirs in YAML


def lower(values: dict[str, Any]) -> None:
    values["benchmarks"]["split-digits"]["methods"]["er"]["lr"] = 0.05


def test_no_key_of_the_environment_is_in_what_the_engines_left(made: Path) -> None:
    assert files_with_keys(made) == []


# One graph


def test_one_parameter_reruns_its_runs_and_what_follows_through_either_engine(
    project: Path,
) -> None:
    before = outputs(project)
    change_twf(project, lambda_fp=0.5)
    said = call(project, "snakemake", REPORT, "--dry-run")
    assert "run split-digits.twf.16.s0 of study demo: lambda_fp: 0.05 -> 0.5" in said
    assert "stale, lambda_fp: 0.05 -> 0.5" in call(project, "twf", "plan", "demo")
    snakemake(project)
    after = outputs(project)
    assert records(before, after) == {TWF, TEXTURES} and made_of_all(before, after)
    repro(project)
    assert written(after, outputs(project)) == set()

    change_params(project, lower)
    repro(project)
    last = outputs(project)
    assert records(after, last) == {ER} and made_of_all(after, last)
    assert not {name for name in written(after, last) if not name.startswith("results/")}
    assert idle(project)
    assert "Running stage" not in repro(project).replace("Running stage 'plan@demo'", "")


def test_after_dvc_repro_snakemake_has_nothing_to_do(empty: Path, tmp_path: Path) -> None:
    """Whatever the folder is called: no shell reads its name."""
    place = tmp_path / """ä 'b" $(touch ran) `touch ran`; touch ran & <b> [x] %s"""
    folder = copied(empty, place)
    repro(folder)
    assert (folder / REPORT).exists()
    assert idle(folder)
    assert not list(tmp_path.rglob("ran"))


def test_an_experiment_reruns_the_same_and_is_shown_beside_its_commit(project: Path) -> None:
    """As the documentation has it: commit, try another value, compare, and go back."""
    commit(project)
    committed, before = json.loads((project / METRICS).read_text()), outputs(project)
    changed = "benchmarks.split-digits.methods.twf.lambda_fp=0.5"
    call(project, "dvc", "exp", "run", "report@demo", "--set-param", changed, "--name", "more")
    assert records(before, outputs(project)) == {TWF, TEXTURES} and idle(project)

    tried = json.loads((project / METRICS).read_text())
    shown = call(project, "dvc", "metrics", "diff", "--targets", METRICS, "--json")
    old, new = (pd.json_normalize(means).loc[0] for means in (committed, tried))
    assert {name: (c["old"], c["new"]) for name, c in json.loads(shown)[METRICS].items()} == {
        name: (old[name], new[name]) for name in old.index if old[name] != new[name]
    }
    call(project, "git", "restore", ".")
    call(project, "dvc", "checkout", "runs@demo", "report@demo")
    assert json.loads((project / METRICS).read_text()) == committed and idle(project)


def test_a_clone_after_pull_needs_neither_engine_and_reruns_what_is_changed(
    shared: Path, tmp_path: Path
) -> None:
    project, clone = copied(shared, tmp_path), tmp_path / "clone"
    call(project, "dvc", "remote", "add", "--default", "shared", str(tmp_path / "remote"))
    call(project, "dvc", "remote", "modify", "shared", "verify", "true")
    stages = call(project, "twf", "plan", "demo", "--stages").split()
    call(project, "dvc", "push", "--quiet", *stages)
    commit(project)
    call(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    digits = files.data_file("digits")
    md5 = hashlib.md5((project / digits).read_bytes()).hexdigest()
    stored = tmp_path / "remote/files/md5" / md5[:2] / md5[2:]
    stored.unlink()  # which is read-only
    stored.write_bytes(b"damaged")
    assert "Checkout failed" in call(clone, "dvc", "pull", *stages, fails=True)
    assert not (clone / digits).exists()
    stored.unlink(missing_ok=True)
    call(project, "dvc", "push", "--quiet", *stages)
    call(clone, "dvc", "pull", "--quiet", *stages)
    assert trains(clone, REPORT) == {}
    before = outputs(clone)
    own = [name for name in outputs(project) if not name.endswith(".snakemake_timestamp")]
    assert sorted(before) == sorted(own)
    assert all((clone / name).read_bytes() == (project / name).read_bytes() for name in own)
    assert idle(clone) and "to do" not in repro(clone)
    assert written(before, outputs(clone)) == set()
    change_twf(clone, alpha=0.7)
    assert trains(clone, REPORT) == {"run": 2}


# What times, notes and files that are gone say: nothing


def test_nothing_is_trained_for_a_time_a_note_or_an_input_that_is_gone(project: Path) -> None:
    """Records are enough, as git may hold them; and only what is changed is then trained."""
    shutil.rmtree(project / ".snakemake")
    assert idle(project)
    for number, name in enumerate(sorted(outputs(project), key=lambda name: name[::-1])):
        os.utime(project / name, (1.7e9 + number, 1.7e9 + number))
    os.utime(project / RECORDS[TWF], (1.6e8, 1.6e8))
    os.utime(project / RECORDS[ER], (4e9, 4e9))
    for name in ("data", "checkpoints", "results/demo/tables", "results/demo/figures"):
        shutil.rmtree(project / name)
    assert trains(project, REPORT) == {}
    for name in (RUNS, METRICS, REPORT, str(files.runs_page("demo"))):
        (project / name).unlink()
    assert jobs(project, REPORT) == OF_RECORDS | {"total": 2}
    change_params(project, lower)  # of the record from the future
    assert trains(project, REPORT) == {"data": 2, "pretrain": 1, "run": 1}


def test_touch_seals_nothing_that_is_not_as_planned(project: Path) -> None:
    def touched(change: Callable[[dict[str, Any]], object]) -> dict[str, int]:
        change_params(project, change)
        snakemake(project, "--touch")
        return jobs(project, REPORT)

    main = lambda values: values["studies"]["demo"]["experiments"]["main"]  # noqa: E731
    of_all = OF_RECORDS | {"total": 2}
    assert touched(lambda v: main(v).update(methods=["er", "twf"])) == of_all  # fewer runs
    assert touched(lambda v: main(v).update(methods=["finetune", "er", "twf"])) == {}
    assert touched(lambda v: v["fidelity"].update(F8="paper")) == of_all
    change_params(project, lambda v: v["fidelity"].update(F8="published"))
    assert touched(longer) == {"pretrain": 1, "run": 3} | OF_RECORDS | {"total": 6}


@pytest.mark.parametrize("engine", [snakemake, repro])
def test_a_table_of_an_edit_that_is_undone_is_made_again(project: Path, engine: Any) -> None:
    table = str(files.table_file("demo", "main.split-digits", "md"))
    params, before = (project / files.PARAMS).read_text(), (project / table).read_text()
    change_params(project, lambda v: v["studies"]["demo"]["experiments"]["main"].update(title="B"))
    call(project, "snakemake", table, "--cores", "2")
    assert (project / table).read_text() != before
    (project / files.PARAMS).write_text(params)
    engine(project)
    assert (project / table).read_text() == before
    assert idle(project) and jobs(project, table) == {}


def test_what_a_user_forces_is_made_from_what_must_be_there(project: Path) -> None:
    assert trains(project, REPORT, "--forcerun", "run") == {"run": 4}
    os.utime(project / files.checkpoint_file("letters"))
    assert trains(project, REPORT, "--forcerun", RECORDS[ER]) == {"run": 1}
    for name in ("data", "checkpoints"):
        shutil.rmtree(project / name)
    assert trains(project, REPORT, "--forcerun", "run") == {"data": 3, "pretrain": 2, "run": 4}
    assert trains(project, RECORDS[ER], "--force") == {"data": 2, "pretrain": 1, "run": 1}


# What a user edits


def test_a_methods_code_reruns_its_runs_and_a_comment_none(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through both engines. A study that does not follow it says so."""
    shutil.copytree(PROJECT / "src", project / "src", ignore=CACHES, dirs_exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", str(project / "src"))
    code = project / "src/twf/learning/methods/er.py"
    code.write_text(f"# a comment\n{code.read_text()}")
    assert idle(project)
    before = outputs(project)
    with code.open("a") as file:
        file.write("\n\nNEW = 1\n")
    assert "stale, code of er" in call(project, "twf", "plan", "demo")
    assert trains(project, REPORT) == {"run": 1}
    call(project, "dvc", "repro", "runs@demo")
    assert records(before, outputs(project)) == {ER}
    call(project, "sed", "-i", "s/TABLES_VERSION = /&1/", "src/twf/files.py")  # other columns
    repro(project)
    assert idle(project)
    change_params(project, lambda v: v["studies"]["demo"].update(follow_code=False))
    assert trains(project, RUNS) == {}


def test_wrong_parameters_targets_and_configuration_stop_before_the_first_job(fresh: Path) -> None:
    for words, named in {
        (RECORDS[ER].replace("er", "err"),): "did you mean 'split-digits.er.16.s0'",
        (REPORT.replace("demo", "domo"),): "no study 'domo' in params.yaml (did you mean 'demo'?)",
        ("checkpoints/leters.safetensors",): "no source 'leters'",
        (REPORT, "--config", "tracking={'mode': 'off'}"): "--config",
    }.items():
        said = call(fresh, "snakemake", "--cores", "2", *words, fails=True)
        assert named in said and "Traceback" not in said
    change_twf(fresh, lambda_fp=-1.0, lambda_pf=0.1)
    said = snakemake(fresh, fails=True)
    where = "benchmarks.split-digits.methods.twf"
    assert all(part in said for part in (where, "'lambda_pf'", "'lambda_fp'"))
    assert "Traceback" not in said and outputs(fresh) == {}


# While others work


def test_an_edit_while_jobs_run_changes_nothing_for_them_and_the_next_call_sees_it(
    project: Path,
) -> None:
    """A second call says who works by what, and one of the same parameters does its own."""
    change_params(project, lower)
    change_twf(project, lambda_fp=0.5)
    process = start(project, "snakemake", RECORDS[TWF], "--cores", "1", TWF_SAVE_EVERY="0")
    until((project / files.state_file("demo", TWF)).exists, "a saved state")
    job = the_process(project, f"/twf run {files.run_plan('demo', TWF)}")
    os.kill(job, signal.SIGSTOP)
    said = call(project, "snakemake", RECORDS[TWF], "--cores", "1", fails=True)
    assert "Directory cannot be locked" in said
    said = call(project, "twf", "run", "demo", TWF, fails=True)
    assert "this run is being done by another process" in said and ".s0.lock" in said
    call(project, "snakemake", RECORDS[ER], "--cores", "1")  # on another target
    change_twf(project, lambda_fp=0.7)
    said = call(project, "snakemake", RUNS, "--dry-run", fails=True)
    assert "works here with other parameters" in said and "Traceback" not in said
    os.kill(job, signal.SIGCONT)
    assert ended(process)[0] == 0
    said = call(project, "snakemake", RECORDS[TWF], "--dry-run")
    assert "lambda_fp: 0.5 -> 0.7" in said
    assert trains(project, RUNS) == {"run": 2}  # and TwF's other


# Targets, GPUs, archives


def test_jobs_at_once_on_gpus_are_their_slots_unless_told_otherwise(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two GPUs that are not there, for a target that needs none."""
    change_params(fresh, lambda values: values.update(gpu_slots=3))
    gpus = "from twf.gpus import devices\ndevices.gpus = lambda: ['a', 'b']\n"
    (tmp_path / "sitecustomize.py").write_text(gpus)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("snakemake", "data/digits.safetensors", "--cores", "1")
    for more, count in (((), 6), (("--resources", "gpu=2"), 2)):
        (fresh / "data/digits.safetensors").unlink(missing_ok=True)
        assert f'Provided resources: gpu=Resource("gpu", {count})' in call(fresh, *words, *more)


def test_a_file_of_the_users_own_counts_by_its_content_for_dvc_too(fresh: Path) -> None:
    dataset = {"title": "Mine", "reader": "archive", "file": "own.npz", "classes": 2, "size": 16}
    dataset["augmentation"] = {"padding": 1, "flip": False, "mean": [0.5] * 3, "std": [0.5] * 3}
    change_params(fresh, lambda values: values["datasets"].update(mine=dataset))
    made, labels = set(), np.array([0, 1, 0, 1])
    for first in (0, 1, 1):
        images = np.arange(first, first + 4 * 16 * 16 * 3).astype(np.uint8).reshape(4, 16, 16, 3)
        arrays = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
        np.savez(fresh / "own.npz", **arrays)
        call(fresh, "dvc", "repro", "data@mine")
        made.add((fresh / files.data_file("mine")).read_bytes())
    assert len(made) == 2


def test_an_archive_is_fetched_once_kept_pushed_and_pulled(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through both engines, from a server's folder to the prepared arrays, and to another clone."""
    arrays = official.some_arrays("cifar10")
    (archive,) = official.write_archives("cifar10", tmp_path, arrays)
    images = {split: len(arrays[f"y_{split}"]) for split in ("train", "test")}
    official.register(monkeypatch, "cifar10", [archive], images=images, fingerprints={})

    prepared, stages = str(files.data_file("cifar10")), ("archive@cifar10", "data@cifar10")
    said = call(fresh, "snakemake", "--cores", "2", prepared)
    assert "fetch cifar10 (" in said and "data cifar10 (" in said
    made = (fresh / prepared).read_bytes()
    archive.unlink()  # from here on nothing can be fetched
    call(fresh, "dvc", "repro", *stages)
    assert idle(fresh, prepared)
    call(fresh, "dvc", "remote", "add", "--default", "shared", str(tmp_path / "remote"))
    call(fresh, "dvc", "push", "--quiet", *stages)
    for name in ("archives", "data", ".dvc/cache"):
        shutil.rmtree(fresh / name)
    call(fresh, "dvc", "pull", "--quiet", *stages)
    assert (fresh / prepared).read_bytes() == made
    assert idle(fresh, prepared)
    (fresh / prepared).unlink()
    call(fresh, "snakemake", "--cores", "2", prepared)
    assert (fresh / prepared).read_bytes() == made
