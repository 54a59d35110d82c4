"""A checkout of the project's pipeline with a demo study of seconds, for both engines."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from keys import KEYS, has_key
from processes import environment
from project import PROJECT

from twf import files
from twf.results import record

REPORT = str(files.report_file("demo"))


def call(folder: Path, *words: str, fails: bool = False) -> str:
    """Run a command of this environment in `folder`; its output, both streams, without a key."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=KEYS | environment(),  # keys that a test sets itself win
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,  # on a machine that others use too
    )
    assert (done.returncode != 0) == fails, done.stdout
    assert not has_key(done.stdout)
    return done.stdout


def miniature() -> dict:
    """The project's params.yaml with a demo study of seconds."""
    values = yaml.safe_load((PROJECT / "params.yaml").read_text())
    del values["gpu_slots"]  # its default
    for name in ("letters", "textures"):
        values["datasets"][name] |= {"train_per_class": 4, "test_per_class": 2}
        values["sources"][name]["pretraining"]["epochs"] = 1
    benchmark = values["benchmarks"]["split-digits"]
    benchmark |= {"epochs": 1, "batch_size": 64, "buffers": [16]}
    experiments = values["studies"]["demo"]["experiments"]
    main = {"methods": ["finetune", "er", "twf"], "seeds": [0], "buffers": [16]}
    dissimilar = experiments["dissimilar"] | {"methods": ["twf"], "buffers": [16]}
    values["studies"]["demo"]["experiments"] = {
        "main": experiments["main"] | main,
        "dissimilar": dissimilar,
    }
    return values


def catchable() -> dict[str, Any]:
    """The miniature without its second source, and with runs that can be caught."""
    values = miniature()
    del values["studies"]["demo"]["experiments"]["dissimilar"]
    values["benchmarks"]["split-digits"]["epochs"] = 5
    return values


FINETUNE, ER, TWF = (f"split-digits.{name}.s0" for name in ("finetune", "er.16", "twf.16"))
CACHES = shutil.ignore_patterns("__pycache__")
FILES = (  # of the pipeline; DVC's stages of plans depend on code
    *("Snakefile", "workflow", "profiles", "results/printed.csv"),
    *("dvc.yaml", ".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore"),
    *("src/twf/learning", "src/twf/study"),
)


def checkout(folder: Path, values: dict[str, Any] | None = None) -> None:
    """Make `folder` such a checkout, committed, with nothing made yet."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, folder / name, symlinks=True, ignore=CACHES)
        else:
            shutil.copy2(PROJECT / name, folder / name)
    (folder / "params.yaml").write_text(yaml.safe_dump(values or miniature(), sort_keys=False))
    call(folder, "git", "init", "--quiet")
    call(folder, "git", "config", "user.name", "x")
    call(folder, "git", "config", "user.email", "x@example.org")
    commit(folder)


def commit(folder: Path) -> None:
    """Commit all to git."""
    call(folder, "git", "add", "--all")
    call(folder, "git", "commit", "--quiet", "--message", "all")


def copied(folder: Path, place: Path) -> Path:
    """A copy of `folder` in `place`, with its modification times."""
    return Path(shutil.copytree(folder, place / "project", symlinks=True))


def change_params(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the values of a project's params.yaml."""
    path = folder / "params.yaml"
    values = yaml.safe_load(path.read_text())
    change(values)
    path.write_text(yaml.safe_dump(values, sort_keys=False))


def change_twf(folder: Path, **hyperparameters: float) -> None:
    """Change TwF's hyperparameters on Split Digits."""
    change_params(
        folder,
        lambda v: v["benchmarks"]["split-digits"]["methods"]["twf"].update(hyperparameters),
    )


def idle(folder: Path, target: str = REPORT) -> bool:
    """Whether Snakemake finds nothing to do."""
    return "Nothing to be done" in call(folder, "snakemake", target, "--dry-run")


def jobs(folder: Path, *words: str) -> dict[str, int]:
    """What Snakemake would do: how many jobs of each rule."""
    said = call(folder, "snakemake", *words, "--cores", "2", "--dry-run", "--quiet", "rules")
    return {rule: int(n) for rule, n in re.findall(r"^(\w+) +(\d+)$", said, flags=re.M)}


def outputs(folder: Path) -> dict[str, int]:
    """When each of the pipeline's outputs was last written, in nanoseconds."""
    patterns = ("data/*", "checkpoints/*", "results/demo/**/*")
    made = [path for pattern in patterns for path in folder.glob(pattern)]
    return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in made if p.is_file()}


def written(before: dict[str, int], after: dict[str, int]) -> set[str]:
    """The outputs that are new, or were written again."""
    return {name for name, time in after.items() if before.get(name) != time}


def results(folder: Path, run: str) -> dict[str, Any]:
    """What a run's record says, clock times and the like aside."""
    row = record.read(folder / files.record_file("demo", run)).to_pylist()[0]
    kept = {key: row[key] for key in ("digest", "accuracy_class_il", "accuracy_task_il")}
    return kept | {"losses": [epoch["loss"] for epoch in row["history"]]}
