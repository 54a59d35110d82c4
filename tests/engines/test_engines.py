"""Snakemake and DVC keep their promises to each other, on a miniature of the demo study."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import official
import pandas as pd
import pytest
import yaml
from keys import files_with_keys
from miniature import (
    ER,
    FINETUNE,
    HOSTILE,
    PROJECT,
    REPORT,
    TWF,
    call,
    change_params,
    change_twf,
    commit,
    copied,
    idle,
    jobs,
    make_pull,
    outputs,
    results,
    written,
)

from twf import files, study
from twf.data import registry
from twf.study import reading

METRICS = str(files.metrics_file("demo"))

pytestmark = pytest.mark.slow


def snakemake(folder: Path, *words: str, fails: bool = False) -> str:
    return call(folder, "snakemake", REPORT, "--cores", "2", *words, fails=fails)


def repro(folder: Path) -> str:
    return call(folder, "dvc", "repro", "report@demo")


def what_follows_from_twf(folder: Path) -> set[str]:
    """TwF's runs, and everything made of all runs."""
    planned = study.expand(reading.load(folder / "params.yaml"), "demo")
    made = [files.record_file("demo", r.id) for r in planned.runs.values() if r.method == "twf"]
    made += [
        files.table_file("demo", name, ending)
        for name in planned.tables
        for ending in files.TABLE_FORMATS
    ]
    for ending in files.COMPARISON_FORMATS:
        for file in (
            files.comparison_file,
            files.claims_file,
            files.gains_file,
        ):
            made.append(file("demo", ending))
    made += [files.order_file("demo", ending) for ending in ("parquet", "csv")]
    figures = folder / "results/demo/figures"  # with Snakemake's timestamp
    made += [path.relative_to(folder) for path in figures.iterdir()]
    assert files.figure_file("demo", "accuracy.main.split-digits", "svg") in made
    made += [files.runs_file("demo"), files.statement_file("demo")]
    return {*map(str, made), METRICS, REPORT}


def test_no_key_of_the_environment_is_in_what_the_engines_left(made: Path) -> None:
    assert files_with_keys(made) == []


def test_after_snakemake_dvc_repro_trains_nothing(project: Path) -> None:
    """The first `dvc repro` is held by the fixture; a second finds all stages as they were."""
    before = outputs(project)
    assert "Running stage" not in repro(project)
    assert written(before, outputs(project)) == set()
    records = {path.stem for path in (project / "results/demo/runs").iterdir()}
    assert records == {FINETUNE, ER, TWF, "split-digits.twf.16.from-textures.s0"}


def test_after_dvc_repro_snakemake_has_nothing_to_do(empty: Path, tmp_path: Path) -> None:
    """Whatever the folder is called: no shell reads its name."""
    place = tmp_path / """a 'b" $(touch ran) `touch ran`; touch ran & <b> [x] %s"""
    folder = copied(empty, place)
    repro(folder)
    assert (folder / REPORT).exists()
    assert idle(folder)
    assert not list(tmp_path.rglob("ran"))


def test_an_experiment_reruns_the_same_and_is_shown_beside_its_commit(project: Path) -> None:
    """As the documentation has it: commit, try another value, compare, and go back."""

    def dvc(*words: str) -> Any:
        return json.loads(call(project, "dvc", *words, "--json"))

    commit(project)
    committed = json.loads((project / METRICS).read_text())
    assert dvc("metrics", "show", METRICS)[""]["data"][METRICS]["data"] == committed
    assert call(project, "dvc", "metrics", "diff", "--targets", METRICS) == ""

    before = outputs(project)
    key = "benchmarks.split-digits.methods.twf.lambda_fp"
    call(project, "dvc", "exp", "run", "report@demo", "--set-param", f"{key}=0.5", "--name", "more")
    after = outputs(project)
    assert written(before, after) == what_follows_from_twf(project)
    snakemake(project)
    assert written(after, outputs(project)) == set()

    tried = json.loads((project / METRICS).read_text())
    cell = "split-digits.twf.16.class-il"
    old, new = (pd.json_normalize(means).loc[0] for means in (committed, tried))
    assert old[cell] != new[cell]
    changes = dvc("metrics", "diff", "--targets", METRICS)[METRICS]
    assert {name: (change["old"], change["new"]) for name, change in changes.items()} == {
        name: (old[name], new[name]) for name in old.index if old[name] != new[name]
    }
    assert all(".twf." in name for name in changes)

    *_, experiment = dvc("exp", "show")[1]["experiments"]
    (shown,) = experiment["revs"]
    assert (experiment["name"], shown["data"]["metrics"][METRICS]["data"]) == ("more", tried)
    twf = shown["data"]["params"]["params.yaml"]["data"]["benchmarks"]["split-digits"]["methods"]
    assert twf["twf"]["lambda_fp"] == 0.5

    call(project, "git", "restore", ".")
    call(project, "dvc", "checkout", "--with-deps", "report@demo")
    call(project, "twf", "touch", "demo")
    assert json.loads((project / METRICS).read_text()) == committed
    assert idle(project)


def test_records_that_an_experiment_brings_back_are_made_anew(project: Path) -> None:
    """It begins with a checkout, in place of records that DVC has not seen."""
    commit(project)
    change_twf(project, lambda_fp=0.5)
    call(project, "snakemake", str(files.record_file("demo", TWF)), "--cores", "2")
    made = results(project, TWF)
    call(project, "dvc", "exp", "run", "runs-demo")
    plan = json.loads(call(project, "twf", "plan", "demo", "--json"))
    assert {run["status"] for run in plan["runs"].values()} == {"done"}
    assert results(project, TWF) == made
    assert idle(project, str(files.runs_file("demo")))


def misspell(values: dict[str, Any]) -> None:
    """And an impossible value."""
    twf = values["benchmarks"]["split-digits"]["methods"]["twf"]
    twf |= {"lambda_fp": -1.0, "lambda_pf": 0.1}


def bring_own(values: dict[str, Any]) -> None:
    """A file that is not there."""
    own = {"reader": "archive", "file": "archives/mine.npz", "title": "Mine", "size": 16}
    digits = values["datasets"]["digits"]
    values["datasets"]["digits"] = own | {k: digits[k] for k in ("classes", "augmentation")}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (misspell, ["benchmarks.split-digits.methods.twf", "'lambda_pf'", "'lambda_fp'"]),
        (bring_own, ["datasets.digits", "archives/mine.npz"]),
    ],
)
def test_wrong_parameters_and_missing_data_stop_before_the_first_job(
    fresh: Path, change: Callable[[dict[str, Any]], None], named: list[str]
) -> None:
    change_params(fresh, change)
    said = snakemake(fresh, fails=True)
    assert all(part in said for part in named)
    assert "Traceback" not in said
    assert outputs(fresh) == {}


def test_too_small_a_disk_stops_before_the_first_job(fresh: Path, small_disk: Path) -> None:
    images = {"train_per_class": 400}  # some MiB
    change_params(fresh, lambda values: values["datasets"]["letters"].update(images))
    (fresh / "data").symlink_to(small_disk)
    said = snakemake(fresh, fails=True)
    assert f"the disk of {small_disk}" in said and "`twf clean`" in said
    assert outputs(fresh) == {} and list(small_disk.iterdir()) == []


def processor_seconds() -> float:
    """Of processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_planning_the_papers_study_takes_little_more_than_snakemakes_start(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processor time, as others may be at work. The archives have the right size, no more."""
    shutil.copy(PROJECT / "params.yaml", fresh)
    for name, entry in registry.load().items():
        (tmp_path / "mirror" / name).mkdir(parents=True)
        for file_name, file in entry.files.items():
            with (tmp_path / "mirror" / name / file_name).open("wb") as sparse:
                sparse.truncate(file.size)
    monkeypatch.setenv("TWF_MIRROR", str(tmp_path / "mirror"))
    (tmp_path / "nothing").mkdir()
    (tmp_path / "nothing/Snakefile").write_text("rule all:\n")

    def seconds(folder: Path) -> float:
        before = processor_seconds()
        said.append(call(folder, "snakemake", "--dry-run", "--quiet", "rules"))
        return processor_seconds() - before

    said: list[str] = []
    spent = [(seconds(fresh), seconds(tmp_path / "nothing")) for _ in range(3)]
    assert re.search(r"^run +122$", said[0], flags=re.M), said[0][-2000:]
    paper, nothing = (min(column) for column in zip(*spent, strict=True))
    assert paper < 2 * nothing  # 1.4 on a quiet machine

    change_params(fresh, lambda values: values["studies"]["paper"].update(seeds=[*range(5)]))
    assert seconds(fresh) < 15
    assert re.search(r"^run +610$", said[-1], flags=re.M), said[-1][-2000:]


def test_a_table_needs_the_runs_of_its_experiment_alone(fresh: Path) -> None:
    shutil.copy(PROJECT / "params.yaml", fresh)
    for target, runs in (("dissimilar.split-digits.md", 3), ("best-hyperparameters.yaml", 6)):
        found = jobs(fresh, f"results/demo/tables/{target}")
        assert (found["run"], found["pretrain"]) == (runs, 1)
        assert "collect" not in found


def test_jobs_at_once_on_gpus_are_their_slots_unless_told_otherwise(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two GPUs that are not there, for a target that needs none."""
    change_params(fresh, lambda values: values.update(gpu_slots=3))
    gpus = (
        "from twf.gpus import visible\n"
        "visible.gpus = lambda: [visible.Gpu(i, 'A GPU') for i in 'ab']\n"
    )
    (tmp_path / "sitecustomize.py").write_text(gpus)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("snakemake", "data/digits.safetensors", "--cores", "1")
    for more, count in (((), 6), (("--resources", "gpu=2"), 2)):
        (fresh / "data/digits.safetensors").unlink(missing_ok=True)
        assert f'Provided resources: gpu=Resource("gpu", {count})' in call(fresh, *words, *more)


def test_config_may_choose_the_study_and_nothing_else(project: Path) -> None:
    words = ("snakemake", "--cores", "2", "--dry-run", "--config")
    assert "Nothing to be done" in call(project, *words, "study=demo")
    assert "--config" in call(project, *words, "tracking={'mode': 'off'}", fails=True)


def test_a_run_is_the_same_alone_by_hand_and_as_a_target(project: Path) -> None:
    plan = json.loads(call(project, "twf", "plan", "demo", "--json"))
    assert {run["status"] for run in plan["runs"].values()} == {"done"}
    first, record = results(project, TWF), files.record_file("demo", TWF)
    servers = set(project.glob(".snakemake/twf-*"))
    for words in (("twf", "run", "demo", TWF), ("snakemake", str(record), "--cores", "1")):
        (project / record).unlink()
        call(project, *words)
        assert results(project, TWF) == first
    assert set(project.glob(".snakemake/twf-*")) == servers  # none for one job


def test_a_fresh_clone_after_make_pull_needs_neither_engine(project: Path, tmp_path: Path) -> None:
    """A changed hyperparameter then reruns its method's runs and what follows, and no more."""
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    call(project, "dvc", "remote", "add", "--default", "shared", str(remote))
    call(project, "dvc", "push", "--quiet", "report@demo", "--with-deps")
    commit(project)
    call(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    make_pull(clone)
    assert idle(clone)
    make_pull(clone)  # finds all there
    before = outputs(clone)
    assert {name: (clone / name).read_bytes() for name in before} == {
        name: (project / name).read_bytes() for name in outputs(project)
    }
    assert "Running stage" not in repro(clone)
    assert written(before, outputs(clone)) == set()

    change_twf(clone, alpha=0.7)
    needed = jobs(clone, REPORT)
    assert needed["run"] == 2 and not {"data", "pretrain"} & needed.keys()


def test_snakemakes_own_report_has_our_captions_and_needs_no_network(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    assert project.joinpath("params.yaml").read_text().count(HOSTILE) == 2  # titles
    made = project / "results/demo/snakemake-report.html"
    snakemake(project, "--report", str(made.relative_to(project)))
    page = made.read_text()
    assert "alert(1)" not in page and "onerror=alert" not in page
    text = re.sub(r"<[^>]+>", "", page)
    for caption in (
        "Table main.split-digits of the study demo",
        "Each number that the paper prints beside the study demo",
        "Each claim of the paper",
        "Figure accuracy.main.split-digits of the study demo",
        "with which deviations from the paper",
        "The report of the study demo",
        "A reproduction of",
    ):
        assert caption in text, caption
    assert idle(project)


def test_an_archive_is_fetched_once_kept_pushed_and_pulled(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through both engines, from a server's folder to the prepared arrays, and to another clone."""
    arrays = official.some_arrays("cifar10")
    (archive,) = official.write_archives("cifar10", tmp_path, arrays)
    entry = registry.images_entry("cifar10").model_dump()
    entry["images"] = {split: len(arrays[f"y_{split}"]) for split in ("train", "test")}
    entry["fingerprints"] = {}
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    entry["files"] = {archive.name: {"md5": md5, "addresses": [archive.as_uri()]}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"cifar10": entry}))
    monkeypatch.setenv("TWF_REGISTRY", str(tmp_path / "own.yaml"))

    prepared = str(files.data_file("cifar10"))
    said = call(fresh, "snakemake", "--cores", "2", prepared)
    assert "fetch cifar10 (" in said and "data cifar10 (" in said
    made = (fresh / prepared).read_bytes()
    archive.unlink()  # from here on nothing can be fetched
    call(fresh, "dvc", "repro", "data@cifar10")
    assert idle(fresh, prepared)
    call(fresh, "dvc", "remote", "add", "--default", "shared", str(tmp_path / "remote"))
    stages = ("archive@cifar10", "data@cifar10")
    call(fresh, "dvc", "push", "--quiet", *stages)
    for name in ("archives", "data", ".dvc/cache"):
        shutil.rmtree(fresh / name)
    call(fresh, "dvc", "pull", "--quiet", *stages)
    assert (fresh / prepared).read_bytes() == made
    assert hashlib.md5((fresh / "archives/cifar10" / archive.name).read_bytes()).hexdigest() == md5
    assert idle(fresh, prepared)
    (fresh / prepared).unlink()
    call(fresh, "snakemake", "--cores", "2", prepared)
    assert (fresh / prepared).read_bytes() == made
