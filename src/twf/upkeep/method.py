"""`twf new method`: a method that starts as a copy of another, in the three files it touches."""

from __future__ import annotations

import ast
import json
import keyword
import re
import textwrap
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from twf import files
from twf.errors import UserError, lookup
from twf.study import reading
from twf.study.methods import METHODS

DESCRIPTIONS = Path("src/twf/study/methods.py")
LOSSES = Path("src/twf/learning/methods")
_EXPERIMENT = """{name}:
  title: {title}
  benchmarks: [split-digits]
  methods: [{name}, {like}]
  protocols: [class-il]
  buffers: [50]
  seeds: [0, 1, 2, 3, 4]
  baseline: {like}
"""
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new(name: str, like: str, title: str | None = None) -> list[Path]:
    """Make the method `name` as a copy of `like`, which tables call `title`, in this folder.

    Returns the files that it wrote. Raises `UserError` that says what is wrong with a name or
    title, or what is in the way; nothing is written then.
    """
    params = reading.text_of(files.PARAMS)
    reading.parse(params, files.PARAMS)  # a mistake that is there already is reported as such
    lookup("method", METHODS, like, str(DESCRIPTIONS))
    title = title or name
    _check(name, title)
    own = "".join(part.capitalize() for part in name.split("-"))
    loss_file = LOSSES / f"{name.replace('-', '_')}.py"
    descriptions = _read(DESCRIPTIONS)
    loss = _read(LOSSES / f"{like.replace('-', '_')}.py")
    texts = {
        loss_file: _loss(loss, own, like, title),
        DESCRIPTIONS: _described(descriptions, name, own, like, title),
        files.PARAMS: _with_experiment(_with_entries(params, name, like), name, like, title),
    }
    for path, text in texts.items():
        with files.atomic(path) as partial:
            partial.write_text(text, encoding="utf-8")
    return list(texts)


def _check(name: str, title: str) -> None:
    """Raise `UserError` where a method cannot be called so, or is there already."""
    module = name.replace("-", "_")
    if name.lower() in METHODS:
        raise UserError(f"there is a method {name.lower()!r}: choose another name")
    if not NAME.fullmatch(name) or keyword.iskeyword(module):
        raise UserError(
            f"{name!r} cannot be a method's name: small letters, digits and single hyphens, a "
            "letter first, and no word of Python's own"
        )
    if (LOSSES / f"{module}.py").exists():
        raise UserError(f"{LOSSES / module}.py is there already: choose another name, or remove it")
    if not title.isprintable() or not title.strip() or set(title) & set('|"\\'):
        raise UserError(f"{title!r} cannot be a title: printable, without | and quotes")
    for other, info in METHODS.items():
        if info.title.lower() == title.lower():
            raise UserError(f"{other} has the title {title!r}: choose another with --title")


def _loss(source: str, own: str, like: str, title: str) -> str:
    """The other method's loss, with classes of its own."""
    (method,) = re.findall(r"^METHOD = (\w+)$", source, flags=re.M)
    model = METHODS[like].hyperparameters.__name__
    if own in re.findall(r"\w+", source):
        raise UserError(f"the code of {like} uses the name {own}: choose another name")
    began = f'"""{title}, which began as a copy of {METHODS[like].title}."""'
    text = re.sub(r'\A""".*?"""', lambda _: began, source, count=1, flags=re.S)
    its_own = f"from twf.study.methods import {own}Hyperparameters"
    text = re.sub(rf"^from twf\.study\.\w+ import {model}$", its_own, text, flags=re.M)
    return re.sub(rf"\b{method}\b", own, re.sub(rf"\b{model}\b", f"{own}Hyperparameters", text))


def _described(source: str, name: str, own: str, like: str, title: str) -> str:
    """`methods.py` with hyperparameters and an entry for the new method, below the other's."""
    model = METHODS[like].hyperparameters.__name__
    lines = source.splitlines(keepends=True)
    (table,) = (n for n in ast.parse(source).body if isinstance(n, ast.AnnAssign))
    assert isinstance(table.value, ast.Dict)
    (entry,) = (
        value
        for key, value in zip(table.value.keys, table.value.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == like
    )
    assert isinstance(entry, ast.Call)
    given = [ast.get_source_segment(source, word) for word in entry.keywords]
    words = [json.dumps(title, ensure_ascii=False), f"{own}Hyperparameters", *given]
    copy = f'    "{name}": MethodInfo(\n' + "".join(f"        {w},\n" for w in words) + "    ),\n"
    doc = f'"""{title}: those of {METHODS[like].title}."""'
    values = f"class {own}Hyperparameters({model}):\n    {doc}\n\n\n"
    end, start = entry.end_lineno, table.lineno - 1
    assert end is not None
    return "".join([*lines[:start], values, *lines[start:end], copy, *lines[end:]])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"no {path} in {Path.cwd()}: call this in the project's folder") from None


def _with_entries(text: str, name: str, like: str) -> str:
    """`params.yaml` with the values of `like` for `name` too, below them; all else stays."""
    values = reading.plain_values(text, files.PARAMS)
    lines = text.splitlines(keepends=True)
    for _, benchmark in _entries(YAML().compose(text), "benchmarks")[::-1]:
        for key, value in _entries(benchmark, "methods"):
            if key.value == like:
                first, last = key.start_mark, _last_line(value)
                copy = lines[first.line : last + 1]
                copy[0] = copy[0].replace(like, name, 1)
                lines[last + 1 : last + 1] = copy
    for benchmark in values["benchmarks"].values():
        if like in benchmark["methods"]:
            benchmark["methods"][name] = benchmark["methods"][like]
    changed = "".join(lines)
    try:
        as_meant = reading.plain_values(changed, files.PARAMS) == values
    except UserError:
        as_meant = False
    if not as_meant:
        raise UserError(
            f"{files.PARAMS} has no room below {like}'s entries under benchmarks.*.methods; give "
            "each method lines of its own, without anchors"
        )
    return changed


def _with_experiment(text: str, name: str, like: str, title: str) -> str:
    """`params.yaml` with an experiment of the demo that compares the new method with the other.

    Without a demo that has experiments on lines of their own, as it is.
    """
    studies = {key.value: node for key, node in _entries(YAML().compose(text), "studies")}
    experiments = _entries(studies["demo"], "experiments") if "demo" in studies else []
    if not experiments:
        return text
    first = experiments[0][0].start_mark
    lines, indent = text.splitlines(keepends=True), " " * first.column
    if lines[first.line][: first.column] != indent:
        return text
    both = json.dumps(f"{title} beside {METHODS[like].title}", ensure_ascii=False)
    experiment = _EXPERIMENT.format(name=name, like=like, title=both)
    # below the first, which stays the main one of report and metrics
    lines.insert(_last_line(experiments[0][1]) + 1, textwrap.indent(experiment, indent))
    return "".join(lines)


def _entries(mapping: Any, key: str) -> list[tuple[Any, Any]]:
    """The entries of the mapping that stands under a key of another."""
    return next((value.value for name, value in mapping.value if name.value == key), [])


def _last_line(node: Any) -> int:
    """The last line of a node; the end of a block is where the next one begins."""
    if not isinstance(node.value, list) or node.flow_style:
        return int(node.end_mark.line)
    parts = [
        part for entry in node.value for part in (entry if isinstance(entry, tuple) else [entry])
    ]
    return max(map(_last_line, parts))
