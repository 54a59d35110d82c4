"""Files from elsewhere are data: nothing in them is run, and nothing is written elsewhere."""

import os
import pickle
import re
import shlex
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import official
import pytest
import torch
import yaml
from commands import Twf, publish_nothing, succeed
from hostile import Elements, Malicious

from twf import files, study
from twf.data import registry, store
from twf.data.formats import folders
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.results import record
from twf.study import expansion, reading
from twf.study.params import Network

# Files that hold code


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


def best_hyperparameters(path: Path) -> object:
    return expansion.load_best_hyperparameters(str(path), "study")


RESNET = Network(architecture="resnet18", width=4)


def read_weights(path: Path) -> object:
    return checkpoints.read_network(path, RESNET, None)


# tests/data has those of archives
READERS: dict[str, tuple[str, Callable[[Path, Path], None], Callable[[Path], object]]] = {
    "images": ("x", postscript, lambda path: folders(path, 32)),
    "weights": ("x.pth", saved_by_torch, read_weights),
    "old weights": ("x.pth", pickled, read_weights),
    "weights in name": ("x.safetensors", saved_by_torch, read_weights),
    "data": ("x.safetensors", pickled, store.load),
    "checkpoint": ("x.safetensors", saved_by_torch, lambda p: checkpoints.load(p, RESNET)),
    "record": ("x.parquet", pickled, record.read),
    "params": ("x.yaml", tagged, reading.load),
    "registry": ("x.yaml", tagged, lambda _: registry.load()),
    "best hyperparameters": ("x.yaml", tagged, best_hyperparameters),
    "no hyperparameters": ("x.yaml", pickled, best_hyperparameters),
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


# Names and other texts

TEXTS = (
    "<script>hacked = 1</script>",
    '"><img src=x onerror="hacked = 1">',
    "</script></title></style><svg onload=hacked=1>",
    "{{7*7}} {% raw %} {x} ${y} %(z)s",
    "$(touch hacked) `touch hacked` ; touch hacked #",
    "..",
    "../../hacked",
    "a\nb\n\n```\n[link](javascript:hacked=1)",
    "\u202etxt.exe",
    "\x1b]0;hacked\x07\x1b[31m",
    "=cmd|'/c calc'!A0",
    "a\r=cmd|'/c calc'!A0",
    "[/red] $x_{$ \\input{hacked} \\write18{touch hacked}",
)
NAMES = (*TEXTS, "", "a b", "a/b", "-a", "a\n", "A", "a.b", "é")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "path",
    [
        "studies.tiny",
        "datasets.target",
        "sources.origin",
        "benchmarks.split-target",
        "studies.tiny.experiments.main",
        "studies.tiny.experiments.main.variants.plain",
    ],
)
def test_a_name_that_no_file_may_have_is_refused(
    tiny_values: dict[str, Any], path: str, name: str
) -> None:
    """Names become files and words of a shell."""
    experiment = tiny_values["studies"]["tiny"]["experiments"]["main"]
    experiment["variants"] = {"plain": {"title": "Plain"}}
    *outer, key = path.split(".")
    values = reduce(lambda part, name: part[name], outer, tiny_values)
    values[name] = values.pop(key)
    with pytest.raises(UserError, match=r"String should match pattern") as caught:
        reading.check(tiny_values)
    assert f"\n  {'.'.join(outer)}." in str(caught.value)
    assert "\x1b" not in str(caught.value)


# no font has a glyph for control codes, and no plot room for such titles
@pytest.mark.filterwarnings("ignore:Glyph .* missing", "ignore:constrained_layout not applied")
def test_hostile_texts_pass_the_pipeline_as_texts(
    tiny_project: Path, tiny_values: dict[str, Any], twf: Twf
) -> None:
    """Titles, files, classes, a project at Weights & Biases: all that may be any text."""
    values = tiny_values
    values["tracking"] = {"mode": "offline"}
    text = " ".join(TEXTS)
    values["datasets"]["target"]["file"] = "archives/$(touch hacked)<b> {x} '=1.npz"
    Path("archives/target.npz").rename(values["datasets"]["target"]["file"])
    for part in (*values["datasets"].values(), *values["benchmarks"].values()):
        part["title"] += text
    values["benchmarks"]["split-target"]["epochs"] = 1
    values["studies"]["tiny"]["title"] = text
    values["studies"]["tiny"]["experiments"]["main"] |= {
        "title": text,
        "methods": ["er"],
        "variants": {"a": {"title": text}, "b": {"title": TEXTS[10], "pretrained": False}},
    }
    files.PARAMS.write_text(yaml.safe_dump(values))
    for name, classes in {"target": 4, "origin": 3}.items():
        path = Path(values["datasets"][name]["file"])
        arrays = dict(np.load(path))
        np.savez(path.open("wb"), class_names=np.array(TEXTS[:classes]), **arrays)
    publish_nothing()
    around = {path for path in tiny_project.parent.rglob("*") if "project" not in path.parts}
    succeed(twf, "plan tiny", "data prepare target", "data prepare origin", "pretrain origin")
    runs = study.expand(reading.load(files.PARAMS), "tiny").runs
    succeed(twf, *(f"run tiny {run}" for run in runs))
    succeed(twf, "collect tiny", "report tiny")
    assert store.load(files.data_file("target")).classes == list(TEXTS[:4])
    page = Elements(files.report_file("tiny").read_text())
    assert not {"script", "img", "iframe", "object"} & set(page.names)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert text.replace("\r", "\n") in page.text  # as HTML and Python read lines
    results = files.report_file("tiny").parent
    for path in (*results.rglob("*.md"), *results.rglob("*.svg")):
        assert not re.search(r"(?<!\\)<(script|img|svg onload)", path.read_text()), path
    for path in results.rglob("*.tex"):
        assert "\\input" not in path.read_text() and "\\write18" not in path.read_text()
    assert list(Path("wandb").glob("offline-run-*"))
    assert not list(tiny_project.parent.rglob("hacked*"))
    assert {p for p in tiny_project.parent.rglob("*") if "project" not in p.parts} == around
