"""Files from elsewhere are data: nothing in them is run, and nothing is written elsewhere."""

import os
import pickle
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import official
import pytest
import torch
from support import Malicious

from twf.data import registry, store
from twf.data.formats import folders
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.results import record
from twf.study import expansion, reading
from twf.study.params import Network


def pickled(path: Path, trace: Path) -> None:
    path.write_bytes(pickle.dumps(Malicious(trace)))


def saved_by_torch(path: Path, trace: Path) -> None:
    torch.save({"x": Malicious(trace)}, path)


def tagged(path: Path, trace: Path) -> None:
    path.write_text(f"!!python/object/apply:builtins.open [{str(trace)!r}, w]\n")


def postscript(path: Path, trace: Path) -> None:
    """An image that is a program; Ghostscript, were it called, is ours."""
    official.write_folders(path, official.some_arrays("cub200"))
    program = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n"
    next((path / "train").rglob("*.png")).write_text(program)
    interpreter = trace.parent / "bin" / "gs"
    interpreter.parent.mkdir()
    interpreter.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(trace))}\n")
    interpreter.chmod(0o755)


RESNET = Network(architecture="resnet18", width=4)


def read_weights(path: Path) -> object:
    return checkpoints.read_network(path, RESNET, None)


def best_hyperparameters(path: Path) -> object:
    return expansion.load_best_hyperparameters(str(path), "study")


# tests/data has those of archives
READERS: dict[str, tuple[str, Callable[[Path, Path], None], Callable[[Path], object]]] = {
    "images": ("x", postscript, lambda path: folders(path, 32)),
    "weights": ("x.pth", saved_by_torch, read_weights),
    "weights in name": ("x.safetensors", saved_by_torch, read_weights),
    "data": ("x.safetensors", pickled, store.load),
    "checkpoint": ("x.safetensors", saved_by_torch, lambda p: checkpoints.load(p, RESNET)),
    "record": ("x.parquet", pickled, record.read),
    "params": ("x.yaml", tagged, reading.load),
    "registry": ("x.yaml", tagged, lambda _: registry.load()),
    "best hyperparameters": ("x.yaml", tagged, best_hyperparameters),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_with_code_is_named_and_its_code_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    name, write, read = READERS[reader]
    trace = tmp_path / "it ran"
    write(tmp_path / name, trace)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("TWF_REGISTRY", str(tmp_path / "x.yaml"))
    with pytest.raises(UserError, match=re.escape(str(tmp_path / name))):
        read(tmp_path / name)
    assert not trace.exists()


NAMES = (
    *("<img src=x onerror=1>", "{{7*7}} {x} ${y}", "$(touch x)", "`touch x`", "=cmd|'/c calc'!A0"),
    *("..", "../x", "a\nb", "a\n", "\u202etxt.exe", "\x1b]0;x\x07", "", "a b", "a/b", "-a", "A"),
    *("a.b", "é"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_file_may_have_is_refused_wherever_it_stands(tiny_values, name) -> None:
    """Names become files and words of a shell."""
    studies = tiny_values["studies"]
    experiments = studies["tiny"]["experiments"]
    experiments["main"]["variants"] = {"plain": {"title": "Plain"}}
    for path, values, key in (
        ("studies", studies, "tiny"),
        ("datasets", tiny_values["datasets"], "target"),
        ("sources", tiny_values["sources"], "origin"),
        ("benchmarks", tiny_values["benchmarks"], "split-target"),
        ("studies.tiny.experiments", experiments, "main"),
        ("studies.tiny.experiments.main.variants", experiments["main"]["variants"], "plain"),
    ):
        values[name] = values.pop(key)
        with pytest.raises(UserError, match=r"String should match pattern") as caught:
            reading.check(tiny_values)
        assert f"\n  {path}." in str(caught.value) and "\x1b" not in str(caught.value)
        values[key] = values.pop(name)
