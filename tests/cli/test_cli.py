"""The `twf` command: what it says of a user's mistake, its help, and what it plans."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
import yaml
from project import PROJECT
from safetensors.torch import load_file, save_file

from twf import cli, files, study
from twf.errors import GpuError
from twf.gpus import nvidia, visible
from twf.study import reading
from twf.study.params import Params

RUN = "split-target.er.16.s0"


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def twf(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`twf(words)` calls the command in this process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the command would leave its own behind
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("TWF_PARAMS", raising=False)

    def call(words: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["twf", *words.split()])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = int(left.code or 0)
        return Said(code, *capsys.readouterr())

    return call


def mistake(said: Said) -> str:
    """The message of a user's mistake, which is all that is said."""
    assert said.code == 2
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    assert said.out == ""
    return said.err


def change_params(change: Callable[[dict], object]) -> None:
    values = yaml.safe_load(files.PARAMS.read_text())
    change(values)
    files.PARAMS.write_text(yaml.safe_dump(values, sort_keys=False))


def set_width(values: dict) -> None:
    values["sources"]["origin"]["network"]["width"] = 8


def tear(path: Path) -> None:
    """Leave half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


COMMANDS = [
    "plan",
    "data prepare target",
    "pretrain train origin",
    "pretrain import origin mine.pth",
    "pretrain export origin mine.safetensors",
    f"run tiny {RUN}",
    "collect tiny",
    "table tiny main.split-target",
    "compare tiny",
    "metrics tiny",
    "describe tiny",
    "report tiny",
    "track sync tiny",
    "clean",
    "doctor",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_outside_a_project_folder_every_command_says_so(twf, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    message = mistake(twf(words))
    assert f"no params.yaml in {tmp_path}" in message and "--params" in message
    assert list(tmp_path.iterdir()) == []


UNKNOWN = {
    "plan large": ["no study 'large'", "there is tiny"],
    f"run large {RUN}": ["no study 'large'", "there is tiny"],
    "collect large": ["no study 'large'", "there is tiny"],
    "table large main.split-target": ["no study 'large'", "there is tiny"],
    "compare large": ["no study 'large'", "there is tiny"],
    "metrics large": ["no study 'large'", "there is tiny"],
    "describe large": ["no study 'large'", "there is tiny"],
    "report large": ["no study 'large'", "there is tiny"],
    "track sync large": ["no study 'large'", "there is tiny"],
    "doctor large": ["no study 'large'", "there is tiny"],
    "clean large": ["no study 'large'", "there is tiny"],
    "run tiny split-target.er.99.s0": ["no run 'split-target.er.99.s0'", "`twf plan tiny`"],
    "table tiny other": ["no table 'other'", "there is main.split-target"],
    "data show nothing": ["no archive 'nothing'", "there is cifar10, "],
    "data fetch cifar10 nothing": ["no archive 'nothing'", "there is cifar10, "],
    "data fetch --study large": ["no study 'large'", "there is tiny"],
    "data prepare nothing": ["no data set 'nothing'", "there is target, origin"],
    "pretrain train nothing": ["no source 'nothing'", "there is origin"],
    "pretrain export nothing mine.safetensors": ["no source 'nothing'", "there is origin"],
    "pretrain import nothing mine.pth": ["no source 'nothing'", "there is origin"],
}


@pytest.mark.parametrize("words", UNKNOWN)
def test_an_unknown_name_is_answered_with_those_there_are(twf, tiny_project, words):
    message = mistake(twf(words))
    for part in UNKNOWN[words]:
        assert part in message


def test_a_wrong_params_file_is_explained(twf, tiny_project):
    change_params(lambda values: values.update(study="large"))
    assert "study: 'large' does not exist; allowed: tiny" in mistake(twf("plan"))


MISSING = {
    "data prepare target": ("archives/target.npz", ["no archive archives/target.npz", "x_train"]),
    "pretrain train origin": (
        "data/origin.safetensors",
        ["no data set data/origin.safetensors", "`twf data prepare origin`"],
    ),
    "pretrain import origin mine.pth": (None, ["no mine.pth", "put the weights there"]),
    "pretrain export origin mine.safetensors": (
        "checkpoints/origin.safetensors",
        ["no checkpoints/origin.safetensors", "`twf pretrain train origin`"],
    ),
    f"run tiny {RUN}": (
        "data/target.safetensors",
        ["no data set data/target.safetensors", "`twf data prepare target`"],
    ),
    f"run tiny {RUN} ": (
        "checkpoints/origin.safetensors",
        ["no checkpoints/origin.safetensors", "`twf pretrain train origin`"],
    ),
    "collect tiny": (
        None,
        ["no record results/tiny/runs/split-target.joint.s0.parquet", "`twf plan`"],
    ),
    "table tiny main.split-target": (None, ["no results/tiny/runs.parquet", "`twf collect tiny`"]),
    "table tiny": (None, ["no results/tiny/runs.parquet", "`twf collect tiny`"]),
    "compare tiny": (None, ["no results/tiny/runs.parquet", "`twf collect tiny`"]),
    "metrics tiny": (None, ["no results/tiny/runs.parquet", "`twf collect tiny`"]),
    "describe tiny": (None, ["no results/tiny/runs.parquet", "`twf collect tiny`"]),
    "report tiny": (None, ["no results/tiny/runs.parquet", "`twf collect tiny`"]),
}


@pytest.mark.parametrize("words", MISSING)
def test_a_missing_input_is_named_with_the_command_that_makes_it(twf, tiny_inputs, words):
    path, parts = MISSING[words]
    if path is not None:
        Path(path).unlink()
    message = mistake(twf(words))
    for part in parts:
        assert part in message


TORN = {
    "data prepare target": "archives/target.npz",
    "pretrain train origin": "data/origin.safetensors",
    f"run tiny {RUN}": "data/target.safetensors",
    f"run tiny {RUN} ": "checkpoints/origin.safetensors",
}


@pytest.mark.parametrize("words", TORN)
def test_a_torn_input_is_named(twf, tiny_inputs, words):
    tear(Path(TORN[words]))
    assert TORN[words] in mistake(twf(words))


def test_a_torn_record_is_named_and_planned_anew(twf, tiny_inputs):
    assert twf(f"run tiny {RUN}").code == 0
    path = files.record_file("tiny", RUN)
    change_params(lambda v: v["studies"]["tiny"]["experiments"]["main"].update(methods=["er"]))
    tear(path)
    message = mistake(twf("collect tiny"))
    assert str(path) in message and "delete it and run again" in message
    assert json.loads(twf("plan --json").out)["runs"][RUN]["status"] == "unreadable"
    assert "1 unreadable" in twf("plan").out


def test_what_is_there_of_a_study_makes_its_tables_and_report(twf, tiny_inputs):
    """One run of a dozen is done, and another's record is torn."""
    header = "table,benchmark,method,variant,protocol,buffer_size,final_average_accuracy"
    files.PUBLISHED.parent.mkdir(exist_ok=True)
    files.PUBLISHED.write_text(f"{header},final_forgetting\n")
    assert twf(f"run tiny {RUN}").code == 0
    torn = files.record_file("tiny", "split-target.joint.s0")
    torn.write_bytes(b"PAR1")
    said = twf("collect tiny --partial")
    assert said.code == 0
    assert "1 of 12 records; 10 missing, 1 unreadable" in said.out
    assert str(torn) in said.err
    for words in ("table tiny", "compare tiny", "figures tiny", "describe tiny", "report tiny"):
        assert twf(words).code == 0
    assert files.table_file("tiny", "main.split-target", "md").exists()
    assert files.comparison_file("tiny", "md").exists()
    page = files.report_file("tiny").read_text()
    assert "12 planned: 1 finished, 1 unreadable, 10 missing" in page


def test_a_checkpoint_of_another_network_is_refused(twf, tiny_inputs):
    change_params(set_width)
    message = mistake(twf(f"run tiny {RUN}"))
    assert "checkpoints/origin.safetensors" in message
    assert "'width': 4" in message and "'width': 8" in message
    assert "`twf pretrain train origin`" in message


def test_a_checkpoint_that_twf_did_not_write_is_refused(twf, tiny_inputs):
    path = files.checkpoint_file("origin")
    save_file(load_file(path), path)  # without what made it
    message = mistake(twf(f"run tiny {RUN}"))
    assert "checkpoints/origin.safetensors" in message and "`twf pretrain train origin`" in message


def test_weights_that_do_not_fit_are_refused(twf, tiny_project):
    save_file({"fc.weight": torch.zeros(2, 8)}, "mine.safetensors")

    def take_weights(values: dict) -> None:
        network = {"architecture": "resnet50", "width": 4}
        values["sources"]["origin"] = {"network": network, "weights": "mine.safetensors"}

    change_params(take_weights)
    assert "mine.safetensors does not fit" in mistake(twf("pretrain train origin"))


def test_data_of_other_classes_than_params_says_are_refused(twf, tiny_inputs):
    def fewer(values: dict) -> None:
        values["datasets"]["target"]["classes"] = 2

    change_params(fewer)
    message = mistake(twf("run tiny split-target.finetune.s0"))
    assert "data/target.safetensors" in message and "`twf data prepare target`" in message


def test_too_few_images_for_a_batch_are_a_users_mistake(twf, tiny_inputs):
    """Two tasks of 22 images: a batch of 23 is never full."""
    change_params(lambda v: v["benchmarks"]["split-target"].update(batch_size=22))
    assert twf("run tiny split-target.finetune.s0").code == 0
    change_params(lambda v: v["benchmarks"]["split-target"].update(batch_size=23))
    message = mistake(twf("run tiny split-target.finetune.s0"))
    assert "lower benchmarks.split-target.batch_size" in message


def test_a_small_task_among_large_ones_is_a_users_mistake(twf, tiny_inputs):
    """One task of 40 images and one of 4: no batch of 8 in the second."""
    labels = np.repeat([0, 1, 2, 3], [20, 20, 2, 2])
    images = np.zeros((44, 16, 16, 3), np.uint8)
    test = {"x_test": images[:4], "y_test": np.arange(4)}
    np.savez("archives/target.npz", x_train=images, y_train=labels, **test)
    assert twf("data prepare target").code == 0
    message = mistake(twf("run tiny split-target.finetune.s0"))
    assert "task 1" in message and "lower benchmarks.split-target.batch_size" in message


def test_too_few_images_to_pretrain_on_are_a_users_mistake(twf, tiny_inputs):
    change_params(lambda v: v["sources"]["origin"]["pretraining"].update(batch_size=64))
    message = mistake(twf("pretrain train origin"))
    assert "lower sources.origin.pretraining.batch_size" in message


def test_a_diverging_pretraining_is_a_users_mistake(twf, tiny_inputs):
    change_params(lambda v: v["sources"]["origin"]["pretraining"].update(lr=1e30))
    made = files.checkpoint_file("origin").read_bytes()
    assert "lower sources.origin.pretraining.lr" in mistake_after_progress(
        twf("pretrain train origin")
    )
    assert files.checkpoint_file("origin").read_bytes() == made


def mistake_after_progress(said: Said) -> str:
    """A mistake that shows only after lines of progress."""
    assert said.code == 2 and "Traceback" not in said.err
    last = said.err.splitlines()[-1]
    assert last.startswith("error: ")
    return last


@pytest.mark.parametrize("words", ["pretrain train origin", f"run tiny {RUN}"])
def test_cuda_without_a_cuda_device_is_refused(twf, tiny_inputs, monkeypatch, words):
    monkeypatch.setattr(visible, "gpus", list)
    assert "no CUDA device here" in mistake(twf(f"{words} --device cuda"))


def test_a_wrong_tracking_mode_in_the_environment_is_refused(twf, tiny_inputs, monkeypatch):
    monkeypatch.setenv("TWF_TRACKING", "sometimes")
    message = mistake(twf(f"run tiny {RUN}"))
    assert "TWF_TRACKING is 'sometimes'; allowed: auto, online, offline, off" in message


@pytest.mark.parametrize("words", ["nothing", "run tiny", f"run tiny {RUN} --threads 0"])
def test_words_that_the_command_does_not_know_exit_with_2(twf, tiny_project, words):
    said = twf(words)
    assert said.code == 2 and "Usage: twf" in said.err and "Traceback" not in said.err


def test_a_mistake_reaches_the_shell_without_a_traceback(tmp_path):
    """The same through a real process, by the entry that needs no installed script."""
    words = [sys.executable, "-m", "twf", "plan", "large"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert mistake(Said(done.returncode, done.stdout, done.stderr)).count("\n") == 1


@pytest.fixture
def own_archive(tmp_path, monkeypatch) -> bytes:
    """The content of `some.npz` of the archive `target`, which a registry and a mirror have."""
    content = b"some bytes"
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "some.npz").write_bytes(content)
    entry = {
        "title": "Our target",
        "kind": "images",
        "format": "folders",
        "homepage": "https://lab.example",
        "licence": "to be cited",
        "citation": "Us, 2022",
        "files": {"some.npz": {"size": 10, "md5": hashlib.md5(content).hexdigest()}},
        "classes": 4,
        "images": {"train": 44, "test": 16},
        "size": 16,
    }
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"target": entry}))
    monkeypatch.setenv("TWF_REGISTRY", str(tmp_path / "own.yaml"))
    monkeypatch.setenv("TWF_MIRROR", str(mirror))
    return content


@pytest.mark.parametrize("words", ["data fetch target", "data fetch --study tiny"])
def test_archives_are_fetched_by_name_or_for_a_study(twf, tiny_project, own_archive, words):
    """The miniature study's data set `target` is an archive of the registry."""
    values = yaml.safe_load(files.PARAMS.read_text())
    del values["datasets"]["target"]["file"]
    values["datasets"]["target"] |= {"reader": "official", "archive": "target"}
    files.PARAMS.write_text(yaml.safe_dump(values))
    assert re.search(r"target .* 44 \+ 16 .* missing", twf("data list").out)
    assert twf(words).code == 0
    assert (files.archive_folder("target") / "some.npz").read_bytes() == own_archive
    assert re.search(r"target .* 44 \+ 16 .* present", twf("data list").out)
    assert "next: twf data fetch NAME" in twf("data list").out


def test_an_archive_is_shown_with_licence_citation_and_checksum(twf, tiny_project, own_archive):
    said = twf("data show target").out
    for part in (
        "licence: to be cited",
        "Us, 2022",
        "44 for training, 16 for testing, 4 classes",
        f"archives/target/some.npz: 10 bytes, MD5 {hashlib.md5(own_archive).hexdigest()}",
        "train fingerprint at 16 pixels: not known",
        "status: missing",
    ):
        assert part in said
    assert "SHA-256 0676ba61" in twf("data show resnet50-imagenet").out


def test_the_doctor_exits_with_1_where_something_is_wrong(twf, tiny_project, monkeypatch):
    online = {"mode": "online"}
    monkeypatch.setattr(nvidia, "installed", lambda: ([], ""))
    change_params(lambda values: values.update(tracking=online))
    monkeypatch.setenv("HOME", str(tiny_project))
    for name in ("NETRC", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    said = twf("doctor")
    assert said.code == 1 and "wrong   tracking" in said.out
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core]\nno_scm = true\n[cache]\ntype = copy\n")
    monkeypatch.setenv("WANDB_API_KEY", "fake-0123")
    said = twf("doctor tiny")
    assert said.code == 0 and "wrong" not in said.out and "fake-0123" not in said.out


def test_what_is_left_over_goes_with_yes_alone(twf, tiny_project):
    log = files.log_file("tiny", RUN)
    log.parent.mkdir(parents=True)
    log.write_text("said")
    assert "would be removed: 1 items, 4 bytes" in twf("clean tiny --kind logs").out
    assert log.exists()
    assert twf("clean --kind states --yes").out == "removed: 0 items, 0 bytes\n"
    assert "removed: 1 items, 4 bytes" in twf("clean --kind states --kind logs --yes").out
    assert not log.exists()


def test_to_fetch_nothing_says_what_there_is_to_say(twf, tiny_project):
    message = mistake(twf("data fetch"))
    assert "--study STUDY" in message and "`twf data list`" in message


def test_a_wrong_registry_of_ones_own_is_explained(twf, tiny_project, monkeypatch):
    monkeypatch.setenv("TWF_REGISTRY", "nowhere.yaml")
    assert "TWF_REGISTRY is nowhere.yaml" in mistake(twf("data list"))


NEXT = {
    "": "twf plan",
    "plan": "snakemake --cores all results/STUDY/report.html",
    "data list": "twf data fetch NAME",
    "data show": "twf data fetch NAME",
    "data fetch": "twf data prepare",
    "data prepare": "twf pretrain train",
    "pretrain train": "twf run",
    "pretrain import": "twf run",
    "pretrain export": "twf pretrain import SOURCE FILE",
    "run": "twf collect",
    "collect": "twf table",
    "table": "twf compare",
    "compare": "twf figures",
    "metrics": "twf figures",
    "figures": "twf describe",
    "describe": "twf report",
    "search": "twf report",
    "data import": "twf pretrain train",
}


@pytest.mark.parametrize("command", NEXT)
def test_help_names_the_next_step(twf, command):
    said = twf(f"{command} --help")
    assert said.code == 0
    assert NEXT[command] in " ".join(said.out.replace("│", " ").split())


@pytest.mark.parametrize("command", ["report", "schema", "data", "pretrain"])
def test_every_other_command_has_help(twf, command):
    said = twf(f"{command} --help")
    assert said.code == 0 and f"Usage: twf {command}" in said.out


def test_the_whole_way_from_archive_to_report_and_what_plan_says_on_it(twf, tiny_project):
    def status() -> dict:
        said = twf("plan --json")
        assert said.code == 0 and said.err == ""
        return json.loads(said.out)

    def keep_two(values: dict) -> None:
        main = values["studies"]["tiny"]["experiments"]["main"]
        main["methods"] = ["finetune", "er"]

    change_params(keep_two)
    planned = status()
    assert planned["study"] == "tiny"
    assert planned["data"] == {"origin": "to do", "target": "to do"}
    assert planned["sources"] == {"origin": "to do"}
    runs = {name: run["status"] for name, run in planned["runs"].items()}
    assert runs == {"split-target.finetune.s0": "to do", RUN: "to do"}
    assert "next: snakemake --cores all results/tiny/report.html" in twf("plan").out

    for words in ("data prepare target", "data prepare origin", "pretrain train origin"):
        assert twf(words).code == 0
    files.checkpoint_file("origin").rename("mine.safetensors")
    said = twf("pretrain import origin mine.safetensors")
    assert said.code == 0 and "% of the test images of origin right" in said.out
    for run in runs:
        assert twf(f"run tiny {run}").code == 0
    planned = status()
    assert planned["data"] == {"origin": "done", "target": "done"}
    assert planned["sources"] == {"origin": "done"}
    assert {run["status"] for run in planned["runs"].values()} == {"done"}
    assert "next:" not in twf("plan").out

    (tiny_project / files.PUBLISHED).write_text(
        "benchmark,method,protocol,buffer_size,variant,final_average_accuracy,final_forgetting\n"
    )
    for words in ("collect tiny", "table tiny main.split-target", "compare tiny"):
        assert twf(words).code == 0
    for words in ("figures tiny", "describe tiny", "report tiny"):
        said = twf(words)
        assert (said.code, said.out) == (0, "")
    assert files.figure_file("tiny", "losses.main.split-target", "svg").exists()
    for extension in files.TABLE_FORMATS:
        assert files.table_file("tiny", "main.split-target", extension).exists()
    assert "Split Target" in files.report_file("tiny").read_text()

    change_params(lambda v: v["benchmarks"]["split-target"]["methods"]["er"].update(lr=0.06))
    runs = {name: run["status"] for name, run in status()["runs"].items()}
    assert runs == {"split-target.finetune.s0": "done", RUN: "stale"}
    assert twf("plan --todo").out == f"{RUN}\n"
    assert "1 done, 1 stale" in twf("plan").out


def test_a_report_of_the_records_that_are_there_needs_nothing_else(twf, tiny_inputs):
    """One of the runs was done; data and checkpoint are then gone."""
    files.PUBLISHED.parent.mkdir(exist_ok=True)
    files.PUBLISHED.write_text(
        "benchmark,method,protocol,buffer_size,variant,final_average_accuracy,final_forgetting\n"
    )
    assert twf(f"run tiny {RUN}").code == 0
    for path in (files.data_file("origin"), files.checkpoint_file("origin")):
        path.unlink()
    said = twf("report tiny --partial")
    assert said.code == 0 and said.err == ""
    missing = len(study.expand(reading.load(files.PARAMS), "tiny").runs) - 1
    assert f"1 of {missing + 1} records; {missing} missing, 0 unreadable" in said.out
    text = files.report_file("tiny").read_text()
    assert RUN in text and "missing" in text
    for made in (
        files.table_file("tiny", "main.split-target", "md"),
        files.comparison_file("tiny", "md"),
        files.metrics_file("tiny"),
        files.statement_file("tiny"),
        files.figure_index("tiny"),
    ):
        assert made.exists()


def test_track_sync_says_what_became_of_each_run_and_fails_if_one_did(
    twf, tiny_inputs, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert "no records of study tiny" in mistake(twf("track sync tiny"))
    assert twf(f"run tiny {RUN}").code == 0
    assert "no key for Weights & Biases" in mistake(twf("track sync tiny --mode online"))
    said = twf("track sync tiny")
    assert (said.code, said.out) == (0, "to wandb/: 1 sent, 0 there already\n")
    said = twf("track sync tiny --mode offline")
    assert (said.code, said.out) == (0, "to wandb/: 0 sent, 1 there already\n")
    torn = files.record_file("tiny", "split-target.joint.s0")
    torn.write_bytes(b"PAR1")
    said = twf("track sync tiny")
    assert (said.code, said.out) == (1, "to wandb/: 0 sent, 1 there already, 1 failed\n")
    assert f"failed: {torn.stem}: {torn} cannot be read" in said.err


def test_params_may_lie_elsewhere(twf, tiny_project, tmp_path, monkeypatch):
    files.PARAMS.rename(tmp_path / "mine.yaml")
    assert twf(f"plan tiny --json --params {tmp_path}/mine.yaml").code == 0
    monkeypatch.setenv("TWF_PARAMS", f"{tmp_path}/mine.yaml")
    assert twf("plan tiny --json").code == 0


def test_schema_writes_the_projects_schema(twf, tmp_path):
    assert twf(f"schema {tmp_path}/folder/schema.json").code == 0
    project = PROJECT
    text = (tmp_path / "folder/schema.json").read_text()
    assert text == (project / files.SCHEMA).read_text()


def test_planning_imports_no_torch(twf, tiny_inputs: Params):
    """Not even where a record is read to tell whether it is stale."""
    assert twf(f"run tiny {RUN}").code == 0
    code = (
        "import sys; sys.argv = ['twf', 'plan', '--json']\n"
        "from twf import cli; cli.app(standalone_mode=False)\n"
        "sys.exit(str({'torch', 'sklearn', 'matplotlib', 'wandb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout)["runs"][RUN]["status"] == "done"
    assert done.stderr.strip() == "set()"


def test_a_mistake_is_not_tried_again_and_is_once_mended(twf, tiny_inputs):
    """Snakemake repeats a failed job; the first attempt of a later call starts afresh."""
    data = files.data_file("target")
    aside = data.with_name("aside")
    data.rename(aside)
    words = "run tiny split-target.er.16.s0"
    first = mistake(twf(f"{words} --attempt 1"))
    assert str(data) in first
    aside.rename(data)
    assert mistake(twf(f"{words} --attempt 2")) == first.rstrip() + " (not tried again)\n"
    assert twf(f"{words} --attempt 1").code == 0
    assert twf(f"{words} --attempt 2").code == 0


def test_what_a_gpu_refused_is_tried_again(twf, tiny_inputs, monkeypatch):
    def crowded(*_):
        raise GpuError("GPU-a has too little memory left")

    with monkeypatch.context() as once:
        once.setattr(cli.training, "device_for", crowded)
        assert mistake(twf(f"run tiny {RUN} --attempt 1")) == (
            "error: GPU-a has too little memory left\n"
        )
    assert twf(f"run tiny {RUN} --attempt 2").code == 0
