"""Snakemake and DVC keep their promises to each other, on a miniature of the demo study."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
from pathlib import Path
from typing import Any

import official
import pandas as pd
import pytest
import yaml
from keys import files_with_keys
from miniature import PROJECT, call, checkout, make_pull

from twf import study
from twf.data import registry
from twf.results import record
from twf.study import reading

REPORT = "results/demo/report.html"
METRICS = "results/demo/metrics.json"

pytestmark = pytest.mark.slow


def snakemake(folder: Path, *words: str) -> str:
    return call(folder, "snakemake", REPORT, "--cores", "2", *words)


def repro(folder: Path) -> str:
    return call(folder, "dvc", "repro", "report@demo")


def idle(folder: Path) -> bool:
    """Whether Snakemake finds nothing to do."""
    return "Nothing to be done" in snakemake(folder, "--dry-run")


def outputs(folder: Path) -> dict[str, int]:
    """When each of the pipeline's outputs was last written, in nanoseconds."""
    made = [
        *folder.glob("data/*"),
        *folder.glob("checkpoints/*"),
        *folder.glob("results/demo/**/*"),
    ]
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in made if p.is_file()}


def written(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """The outputs that are new, or were written again."""
    return {name for name, time in after.items() if before.get(name) != time}


def change(folder: Path, **hyperparameters: float) -> None:
    """Change TwF's hyperparameters on Split Digits."""
    path = folder / "params.yaml"
    values = yaml.safe_load(path.read_text())
    values["benchmarks"]["split-digits"]["methods"]["twf"] |= hyperparameters
    path.write_text(yaml.safe_dump(values, sort_keys=False))


def what_follows_from_twf(folder: Path) -> set[str]:
    """TwF's runs, and everything made of all runs."""
    planned = study.expand(reading.load(folder / "params.yaml"), "demo")
    runs = {
        f"results/demo/runs/{run.id}.parquet"
        for run in planned.runs.values()
        if run.method == "twf"
    }
    tables = {
        f"results/demo/tables/{name}.{ending}"
        for name in planned.tables
        for ending in ("parquet", "csv", "md", "tex")
    }
    figures = {
        str(path.relative_to(folder)) for path in (folder / "results/demo/figures").iterdir()
    }
    assert "results/demo/figures/accuracy.main.split-digits.svg" in figures
    compared = {
        f"results/demo/tables/{name}.{ending}"
        for name in ("comparison", "claims")
        for ending in ("parquet", "csv", "md")
    }
    described = {
        str(path.relative_to(folder)) for path in (folder / "results/demo/model-cards").iterdir()
    }
    assert {f"results/demo/model-cards/{source}.md" for source in planned.sources} <= described
    described.add("results/demo/reproducibility.md")
    made = runs | tables | figures | compared | described
    return made | {"results/demo/runs.parquet", METRICS, REPORT}


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the project's pipeline with the miniature study, nothing made yet."""
    folder = tmp_path_factory.mktemp("engines") / "project"
    checkout(folder)
    return folder


@pytest.fixture(scope="session")
def made(empty: Path) -> Path:
    """The same after `snakemake` and `dvc repro`, which did not train anything."""
    folder = empty.with_name("made")
    shutil.copytree(empty, folder)
    snakemake(folder)
    before = outputs(folder)
    repro(folder)
    assert written(before, outputs(folder)) == set()
    assert idle(folder)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """A copy of `made` for one test, with its modification times."""
    folder = tmp_path / "project"
    shutil.copytree(made, folder)
    return folder


def test_no_key_of_the_environment_is_in_what_the_engines_left(made: Path) -> None:
    assert files_with_keys(made) == []


def test_after_snakemake_dvc_repro_trains_nothing(project: Path) -> None:
    """The first `dvc repro` is held by the fixture; a second finds all stages as they were."""
    before = outputs(project)
    said = repro(project)
    assert written(before, outputs(project)) == set()
    assert "Running stage" not in said
    records = {p.stem for p in (project / "results/demo/runs").iterdir()}
    assert records == {
        "split-digits.finetune.s0",
        "split-digits.er.16.s0",
        "split-digits.twf.16.s0",
        "split-digits.twf.16.from-textures.s0",
    }


def test_after_dvc_repro_snakemake_has_nothing_to_do(empty: Path, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(empty, folder)
    repro(folder)
    assert (folder / REPORT).exists()
    assert idle(folder)


def test_a_changed_hyperparameter_reruns_its_methods_runs_and_what_follows(project: Path) -> None:
    """Through DVC: the test of an experiment."""
    before = outputs(project)
    change(project, lambda_fp=0.5)
    snakemake(project)
    after = outputs(project)
    assert written(before, after) == what_follows_from_twf(project)
    repro(project)
    assert written(after, outputs(project)) == set()
    assert idle(project)


def test_an_experiment_reruns_the_same_and_is_shown_beside_its_commit(project: Path) -> None:
    """As the documentation has it: commit, try another value, compare, and go back."""

    def dvc(*words: str) -> Any:
        return json.loads(call(project, "dvc", *words, "--json"))

    call(project, "git", "add", "--all")
    call(project, "git", "commit", "--quiet", "--message", "made")
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
    cell = "main.split-digits.twf.16.class-il"
    old, new = (pd.json_normalize(means).loc[0] for means in (committed, tried))
    assert old[f"{cell}.faa"] != new[f"{cell}.faa"]
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

    call(project, "dvc", "plots", "diff", "HEAD", "workspace", "--targets", "demo")
    page = (project / "dvc_plots/index.html").read_text()
    drawn = pd.read_csv(project / "results/demo/figures/accuracy.main.split-digits.csv", dtype=str)
    assert "demo, average accuracy over the tasks seen, split-digits" in page
    assert all(f'"mean": "{mean}"' in page for mean in drawn["mean"])
    assert '"rev": "HEAD"' in page and '"rev": "workspace"' in page

    call(project, "git", "restore", ".")
    call(project, "dvc", "checkout", "--with-deps", "report@demo")
    call(project, "twf", "settle", "demo")
    assert json.loads((project / METRICS).read_text()) == committed
    assert idle(project)


def test_a_wrong_value_stops_before_the_first_job(project: Path) -> None:
    before = outputs(project)
    change(project, lambda_fp=-1.0, lambda_pf=0.1)
    said = call(project, "snakemake", REPORT, "--cores", "2", fails=True)
    assert "benchmarks.split-digits.methods.twf" in said
    assert "'lambda_pf' (did you mean 'lambda_fp'?)" in said
    assert "Traceback" not in said
    assert written(before, outputs(project)) == set()


def test_missing_data_stop_before_the_first_job(empty: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(empty, project)
    path = project / "params.yaml"
    values = yaml.safe_load(path.read_text())
    own = {"reader": "archive", "file": "archives/mine.npz", "title": "Mine", "size": 16}
    digits = values["datasets"]["digits"]
    values["datasets"]["digits"] = own | {key: digits[key] for key in ("classes", "augmentation")}
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    said = call(project, "snakemake", REPORT, "--cores", "2", fails=True)
    assert "datasets.digits: no archives/mine.npz; put it there" in said
    assert outputs(project) == {}


def test_too_small_a_disk_stops_before_the_first_job(
    empty: Path, tmp_path: Path, small_disk: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(empty, project)
    path = project / "params.yaml"
    values = yaml.safe_load(path.read_text())
    values["datasets"]["letters"]["train_per_class"] = 400  # some MiB of images
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    (project / "data").symlink_to(small_disk)
    said = call(project, "snakemake", REPORT, "--cores", "2", fails=True)
    assert "what remains of study demo needs" in said and f"the disk of {small_disk}" in said
    assert "`twf clean` shows what can go" in said
    assert outputs(project) == {} and list(small_disk.iterdir()) == []


def test_the_papers_study_with_five_seeds_is_planned_in_seconds(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of processor time, as others may be at work. The archives have the right size, no more."""
    project = tmp_path / "project"
    shutil.copytree(empty, project)
    values = yaml.safe_load((PROJECT / "params.yaml").read_text())
    values["studies"]["paper"]["seeds"] = [0, 1, 2, 3, 4]
    (project / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    for name, entry in registry.load().items():
        (tmp_path / "mirror" / name).mkdir(parents=True)
        for file_name, file in entry.files.items():
            with (tmp_path / "mirror" / name / file_name).open("wb") as sparse:
                sparse.truncate(file.size)
    monkeypatch.setenv("TWF_MIRROR", str(tmp_path / "mirror"))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = call(project, "snakemake", "--dry-run", "--quiet", "rules")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert re.search(r"^run +595$", said, flags=re.M), said[-2000:]
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15


def test_jobs_at_once_on_gpus_are_their_slots_unless_told_otherwise(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two GPUs that are not there, for a target that needs none."""
    project = tmp_path / "project"
    shutil.copytree(empty, project)
    (project / "params.yaml").write_text("gpu_slots: 3\n" + (project / "params.yaml").read_text())
    gpus = (
        "from twf.gpus import nvidia, visible\n"
        "visible.gpus = lambda: [nvidia.Gpu(i, 'A GPU') for i in 'ab']\n"
    )
    (tmp_path / "sitecustomize.py").write_text(gpus)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    words = ("snakemake", "data/digits.safetensors", "--cores", "1")
    for more, count in (((), 6), (("--resources", "gpu=2"), 2)):
        (project / "data/digits.safetensors").unlink(missing_ok=True)
        assert f'Provided resources: gpu=Resource("gpu", {count})' in call(project, *words, *more)


def test_config_may_choose_the_study_and_nothing_else(project: Path) -> None:
    said = call(project, "snakemake", "--cores", "2", "--config", "study=demo", "--dry-run")
    assert "Nothing to be done" in said
    words = ("snakemake", "--cores", "2", "--dry-run", "--config")
    assert "no study 'dmeo'" in call(project, *words, "study=dmeo", fails=True)
    said = call(project, *words, "tracking={'mode': 'off'}", fails=True)
    assert "change anything else in params.yaml" in said


def test_a_run_can_be_done_alone_with_the_same_words_and_the_same_result(project: Path) -> None:
    path = project / "results/demo/runs/split-digits.twf.16.s0.parquet"
    first = record.read(path).to_pylist()[0]
    path.unlink()
    call(project, "twf", "run", "demo", "split-digits.twf.16.s0")
    second = record.read(path).to_pylist()[0]
    for column in ("accuracy_class_il", "accuracy_task_il", "digest"):
        assert first[column] == second[column]
    losses = [[entry["loss"] for entry in row["history"]] for row in (first, second)]
    assert losses[0] == losses[1]


def test_a_fresh_clone_after_make_pull_needs_neither_engine(project: Path, tmp_path: Path) -> None:
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    call(project, "dvc", "remote", "add", "--default", "shared", str(remote))
    call(project, "dvc", "remote", "modify", "shared", "verify", "true")
    call(project, "dvc", "push", "--quiet", "report@demo", "--with-deps")
    call(project, "git", "add", "--all")
    call(project, "git", "commit", "--quiet", "--message", "made")
    call(tmp_path, "git", "clone", "--quiet", str(project), str(clone))
    make_pull(clone)
    assert idle(clone)
    before = outputs(clone)
    assert {name: (clone / name).read_bytes() for name in before} == {
        name: (project / name).read_bytes() for name in outputs(project)
    }
    repro(clone)
    assert written(before, outputs(clone)) == set()
    change(clone, alpha=0.7)
    snakemake(clone)
    assert written(before, outputs(clone)) == what_follows_from_twf(clone)


def test_no_shell_reads_the_name_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / """a 'b" $(touch ran) `touch ran`; touch ran & <b> [x] %s"""
    checkout(folder)
    snakemake(folder)
    repro(folder)
    assert idle(folder)
    assert not list(tmp_path.rglob("ran"))


def test_every_target_is_a_file_that_plan_names(project: Path) -> None:
    """What `twf plan --json` calls done is there; and Snakemake makes any one run as a target."""
    plan = json.loads(call(project, "twf", "plan", "demo", "--json"))
    assert {run["status"] for run in plan["runs"].values()} == {"done"}
    target = project / "results/demo/runs/split-digits.er.16.s0.parquet"
    target.unlink()
    call(project, "snakemake", str(target.relative_to(project)), "--cores", "1")
    assert target.exists()


def test_snakemakes_own_report_has_our_captions_and_needs_no_network(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    path = project / "params.yaml"
    values = yaml.safe_load(path.read_text())
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    values["studies"]["demo"]["title"] = hostile
    values["benchmarks"]["split-digits"]["title"] = hostile
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    snakemake(project)
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
        "that runs of the study demo start from",
        "The report of the study demo",
    ):
        assert caption in text, caption
    assert "A reproduction of" in text
    assert idle(project)


def test_an_archive_is_fetched_once_kept_pushed_and_pulled(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through both engines, from a server's folder to the prepared arrays, and to another clone."""
    folder = tmp_path / "project"
    shutil.copytree(empty, folder)
    arrays = official.some_arrays("cifar10")
    (archive,) = official.write_archives("cifar10", tmp_path, arrays)
    entry = registry.images_entry("cifar10").model_dump()
    entry["images"] = {split: len(arrays[f"y_{split}"]) for split in ("train", "test")}
    entry["fingerprints"] = {}
    md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    entry["files"] = {archive.name: {"md5": md5, "addresses": [archive.as_uri()]}}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"cifar10": entry}))
    monkeypatch.setenv("TWF_REGISTRY", str(tmp_path / "own.yaml"))

    said = call(folder, "snakemake", "--cores", "2", "data/cifar10.safetensors")
    assert "2 of 2 steps" in said
    made = (folder / "data/cifar10.safetensors").read_bytes()
    archive.unlink()  # from here on nothing can be fetched
    call(folder, "dvc", "repro", "data@cifar10")
    assert "Nothing to be done" in call(
        folder, "snakemake", "--cores", "2", "data/cifar10.safetensors"
    )
    call(folder, "dvc", "remote", "add", "--default", "shared", str(tmp_path / "remote"))
    stages = ("archive@cifar10", "data@cifar10")
    call(folder, "dvc", "push", "--quiet", *stages)
    for name in ("archives", "data", ".dvc/cache"):
        shutil.rmtree(folder / name)
    call(folder, "dvc", "pull", "--quiet", *stages)
    assert (folder / "data/cifar10.safetensors").read_bytes() == made
    assert hashlib.md5((folder / "archives/cifar10" / archive.name).read_bytes()).hexdigest() == md5
    assert "Nothing to be done" in call(
        folder, "snakemake", "--cores", "2", "data/cifar10.safetensors"
    )
    (folder / "data/cifar10.safetensors").unlink()
    call(folder, "snakemake", "--cores", "2", "data/cifar10.safetensors")
    assert (folder / "data/cifar10.safetensors").read_bytes() == made
