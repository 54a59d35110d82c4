"""`twf new method`: a method that starts as a copy of another, in the three files it touches."""

import contextlib
import json
import re
import textwrap
from pathlib import Path

import yaml

from twf import files
from twf.errors import UserError, lookup
from twf.study import reading
from twf.study.methods import METHODS

DESCRIPTIONS = Path("src/twf/study/methods.py")
LOSSES = Path("src/twf/learning/methods")
NAME = re.compile(r"(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")  # an experiment's name, too


def new(name: str, like: str, title: str | None = None) -> list[Path]:
    """Make the method `name`, which tables call `title`, as a copy of `like`; the files written.

    Raises `UserError` for a name or title that is wrong or taken; nothing is written then.
    """
    reading.load(files.PARAMS)  # a mistake that is there already is reported as such
    lookup("method", METHODS, like, str(DESCRIPTIONS))
    title, loss_file = title or name, LOSSES / f"{name.replace('-', '_')}.py"
    if not NAME.fullmatch(name) or name in {"none", "true", "false", "null"}:
        allowed = "at most 40 small letters, digits and hyphens, and no constant's name"
        raise UserError(f"{name!r} cannot be a method's name: {allowed}")
    if loss_file.exists():
        raise UserError(f"{loss_file} is there already: choose another name, or remove it")
    own = "".join(part.capitalize() for part in name.split("-"))
    source = (LOSSES / f"{like.replace('-', '_')}.py").read_text(encoding="utf-8")
    if own in re.findall(r"\w+", source):
        raise UserError(f"the code of {like} uses the name {own}: choose another name")
    if not title.isprintable() or set(title) & set('|"\\'):
        raise UserError(f"{title!r} cannot be a title: printable, without |, quotes and \\")
    texts = {
        loss_file: _loss(source, own, like, title),
        DESCRIPTIONS: _described(DESCRIPTIONS.read_text(encoding="utf-8"), name, own, like, title),
        files.PARAMS: _with_values(files.PARAMS.read_text(encoding="utf-8"), name, like, title),
    }
    for path, text in texts.items():
        files.write_text(path, text)
    return list(texts)


def _loss(source: str, own: str, like: str, title: str) -> str:
    """The other method's loss, with classes of its own."""
    (method,) = re.findall(r"^METHOD = (\w+)$", source, flags=re.M)
    model = METHODS[like].hyperparameters.__name__
    first = f'"""{title}, which began as a copy of {METHODS[like].title}."""'
    text = source.replace(f"twf.study.types import {model}", f"twf.study.methods import {model}")
    text = re.sub(rf"\b{method}\b", own, re.sub(rf"\b{model}\b", f"{own}Hyperparameters", text))
    return re.sub(r'\A""".*?"""', lambda _: first, text, count=1, flags=re.S)


def _described(source: str, name: str, own: str, like: str, title: str) -> str:
    """`methods.py`, at whose end are hyperparameters and a description of the new method."""
    info = METHODS[like]
    return f'''{source}

class {own}Hyperparameters({info.hyperparameters.__name__}):
    """{title}: those of {info.title}."""


METHODS["{name}"] = dataclasses.replace(
    METHODS["{like}"],
    title={json.dumps(title, ensure_ascii=False)},
    hyperparameters={own}Hyperparameters,
)
'''


def _with_values(text: str, name: str, like: str, title: str) -> str:
    """`params.yaml` with the values of `like` for `name` too, and with a demo of the two."""
    values = reading.plain_values(text, files.PARAMS)
    head, studies, tail = text.partition("\nstudies:\n")
    for methods in (benchmark["methods"] for benchmark in values["benchmarks"].values()):
        methods |= {name: methods[like]} if like in methods else {}
    entry = rf"^      {like}:.*\n(       .*\n)*"
    head = re.sub(entry, lambda m: m[0].replace(like, name, 1) + m[0], head, flags=re.M)
    experiments = values["studies"].get("demo", {}).get("experiments", {})
    of_demo = values["benchmarks"].get("split-digits", {}).get("methods", {})
    if name in experiments:
        raise UserError(f"the demo has an experiment {name} already: choose another name")
    if like in of_demo and len(experiments) > 1:  # the first stays the report's main one
        second = list(experiments)[1]
        experiments[name] = {
            "title": f"{title} beside {METHODS[like].title}",
            "benchmarks": ["split-digits"],
            "methods": [name, like],
            "protocols": ["class-il"],
            "buffers": [50],
            "seeds": [0, 1, 2, 3, 4],
        }
        block = yaml.safe_dump({name: experiments[name]}, default_flow_style=None, sort_keys=False)
        above = rf"^  demo:\n((?: *| *#.*|    .*)\n)*?(?=      {second}:)"
        lines = textwrap.indent(block, " " * 6)
        tail = re.sub(above, lambda m: m[0] + lines, tail, count=1, flags=re.M)
    with contextlib.suppress(UserError):
        if reading.plain_values(changed := f"{head}{studies}{tail}", files.PARAMS) == values:
            return changed
    raise UserError(f"{files.PARAMS}: give {like} lines of its own under benchmarks.*.methods")
