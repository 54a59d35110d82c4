"""A checkout of the project's pipeline with a demo study of seconds, for both engines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from keys import KEYS, has_key
from project import PROJECT

from twf import files, study
from twf.results import record
from twf.study import reading

ENVIRONMENT = {"TWF_TRACKING": "off", "DVC_NO_ANALYTICS": "1"}


def call(folder: Path, *words: str, fails: bool = False) -> str:
    """Run a command of this environment in `folder`; its output, both streams, without a key."""
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    ours = {"PATH": path} | ENVIRONMENT
    done = subprocess.run(
        words,
        cwd=folder,
        env=KEYS | os.environ | ours,  # keys that a test sets itself win
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert (done.returncode != 0) == fails, done.stdout
    assert not has_key(done.stdout)
    return done.stdout


def make_pull(folder: Path, fails: bool = False) -> str:
    """Call `make pull` for the demo study, in this environment in place of one of its own."""
    makefile = str(PROJECT / "Makefile")
    words = ("make", "--file", makefile, "--assume-old", "setup", "pull", "STUDY=demo")
    return call(folder, *words, fails=fails)


def miniature() -> dict:
    """The project's params.yaml with a demo study of seconds."""
    values = yaml.safe_load((PROJECT / "params.yaml").read_text())
    del values["gpu_slots"]  # its default
    for name in ("letters", "textures"):
        values["datasets"][name] |= {"train_per_class": 4, "test_per_class": 2}
        values["sources"][name]["pretraining"]["epochs"] = 1
    benchmark = values["benchmarks"]["split-digits"]
    benchmark |= {"epochs": 1, "batch_size": 64, "buffers": [16]}
    del benchmark["methods"]["twf"]["overrides"]  # of a buffer that is not there
    experiments = values["studies"]["demo"]["experiments"]
    main = experiments["main"] | {"methods": ["finetune", "er", "twf"], "seeds": [0]}
    dissimilar = experiments["dissimilar"] | {"methods": ["twf"], "buffers": [16]}
    values["studies"]["demo"]["experiments"] = {"main": main, "dissimilar": dissimilar}
    return values


def catchable() -> dict[str, Any]:
    """The miniature without its second source, and with runs that can be caught."""
    values = miniature()
    del values["studies"]["demo"]["experiments"]["dissimilar"]
    values["benchmarks"]["split-digits"]["epochs"] = 5
    return values


FINETUNE, ER, TWF = (f"split-digits.{name}.s0" for name in ("finetune", "er.16", "twf.16"))


def checkout(folder: Path, values: dict[str, Any] | None = None) -> None:
    """Make `folder` such a checkout, committed, with nothing made yet."""
    folder.mkdir()
    for name in ("Snakefile", "dvc.yaml", ".dvcignore", ".gitignore", "environment.yml"):
        shutil.copy2(PROJECT / name, folder)
    shutil.copytree(PROJECT / "workflow", folder / "workflow")
    shutil.copytree(PROJECT / "profiles", folder / "profiles", symlinks=True)
    (folder / "src/twf/data").mkdir(parents=True)
    for name in ("digits", "letters", "textures"):  # what DVC's stages of drawn data depend on
        shutil.copy2(PROJECT / f"src/twf/data/{name}.py", folder / "src/twf/data")
    (folder / "results").mkdir()
    shutil.copy2(PROJECT / "results/published.csv", folder / "results")
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore"):
        shutil.copy2(PROJECT / ".dvc" / name, folder / ".dvc")
    shutil.copytree(PROJECT / ".dvc/plots", folder / ".dvc/plots")
    (folder / "params.yaml").write_text(yaml.safe_dump(values or miniature(), sort_keys=False))
    for words in (
        ("init", "--quiet"),
        ("config", "user.name", "x"),
        ("config", "user.email", "x@example.org"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "start"),
    ):
        call(folder, "git", *words)


def pretend(folder: Path, size: int = 1000) -> None:
    """Fill such a checkout with random bytes as outputs, committed to DVC and git.

    Records have the digests that the plan asks for. The digits' arrays have `size` bytes.
    """
    planned = study.expand(reading.load(folder / "params.yaml"), "demo")
    summary = call(folder, "snakemake", str(files.report_file("demo")), "--summary")
    for line in summary.splitlines():
        name, _, rest = line.partition("\t")
        if not rest or name == "output_file":
            continue
        path = folder / name if "." in Path(name).name else folder / name / "index.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size if path.name == "digits.safetensors" else 1000))
    (folder / files.metrics_file("demo")).write_text("{}")
    for run in planned.runs.values():
        row = dict.fromkeys(record.SCHEMA.names) | {"run": run.id, "digest": run.digest}
        record.write(folder / files.record_file("demo", run.id), row)
    call(folder, "dvc", "commit", "--force", "--with-deps", "report@demo")
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", "made")


def results(folder: Path, run: str) -> dict[str, Any]:
    """What a run's record says, clock times and the like aside."""
    row = record.read(folder / files.record_file("demo", run)).to_pylist()[0]
    kept = {key: row[key] for key in ("digest", "accuracy_class_il", "accuracy_task_il")}
    return kept | {"losses": [epoch["loss"] for epoch in row["history"]]}
