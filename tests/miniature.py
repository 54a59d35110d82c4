"""A checkout of the project's pipeline with a demo study of seconds, for both engines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

PROJECT = Path(__file__).parents[1]


def call(folder: Path, *words: str, fails: bool = False) -> str:
    """Run a command of this environment in `folder`; its output, both streams."""
    path = str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]
    environment = os.environ | {"PATH": path, "TWF_TRACKING": "off", "DVC_NO_ANALYTICS": "1"}
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert (done.returncode != 0) == fails, done.stdout
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


def checkout(folder: Path) -> None:
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
    (folder / "params.yaml").write_text(yaml.safe_dump(miniature(), sort_keys=False))
    for words in (
        ("init", "--quiet"),
        ("config", "user.name", "x"),
        ("config", "user.email", "x@example.org"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "start"),
    ):
        call(folder, "git", *words)
