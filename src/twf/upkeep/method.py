"""`twf new method`: all that a method of one's own consists of, as a copy of one that is there.

A new method trains as the one it is like, to the bit, until its loss is changed; so its test and
its trace are right from the start, and tell when it has become something else.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from twf import files
from twf.errors import UserError, lookup
from twf.study import reading
from twf.study.methods import METHODS

DESCRIPTIONS = Path("src/twf/study/methods")
LOSSES = Path("src/twf/learning/methods")
PAGES = Path("docs/methods")
INDEX = PAGES / "README.md"
GOLDEN = Path("tests/learning/methods/test_golden_losses.py")
TRACES = Path("tests/learning/traces.json")

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new(name: str, like: str, title: str | None = None) -> list[Path]:
    """Make the method `name` as a copy of `like`, which tables call `title`, in this folder.

    Gives the files that it wrote. Raises `UserError` that says what is wrong with a name or title,
    or what is in the way; nothing is written then.
    """
    reading.load(files.PARAMS)  # what is wrong already is said as such
    lookup("method", METHODS, like, str(DESCRIPTIONS))
    copy = _Copy(name, like, title or name)
    copy.check()
    texts = copy.texts()
    for path, text in texts.items():
        with files.atomic(path) as partial:
            partial.write_text(text, encoding="utf-8")
    # from the types with the new method, which this process imported without it
    subprocess.run([sys.executable, "-m", "twf", "schema"], check=True)
    return [*texts, files.SCHEMA]


@dataclass(frozen=True)
class _Copy:
    """A method that is to be, and the one that it is made from."""

    name: str
    like: str
    title: str

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")

    @property
    def model(self) -> str:
        return self.like.replace("-", "_")

    @property
    def order(self) -> int:
        """The first place in tables behind the other's that is free."""
        taken = {info.order for info in METHODS.values()}
        return next(n for n in range(METHODS[self.like].order, max(taken) + 2) if n not in taken)

    @property
    def in_order(self) -> list[str]:
        """All methods, with this one in its place."""
        orders = {name: info.order for name, info in METHODS.items()} | {self.name: self.order}
        return sorted(orders, key=orders.__getitem__)

    def check(self) -> None:
        """Raise `UserError` where the method cannot be called so, or is there already."""
        if self.name.lower() in METHODS:
            raise UserError(f"there is a method {self.name.lower()!r}: choose another name")
        if not NAME.fullmatch(self.name) or keyword.iskeyword(self.module):
            raise UserError(
                f"{self.name!r} cannot be a method's name: small letters, digits and single "
                "hyphens, a letter first, and no word of Python's own"
            )
        for path in (*self._modules, PAGES / f"{self.name}.md"):
            if path.name.lower() in {there.name.lower() for there in path.parent.glob("*")}:
                raise UserError(f"{path} is there already: choose another name, or remove it")
        if not self.title.isprintable() or not self.title.strip() or set(self.title) & set('|"\\'):
            raise UserError(f"{self.title!r} cannot be a title: printable, without | and quotes")
        for name, info in METHODS.items():
            if info.title.lower() == self.title.lower():
                raise UserError(f"{name} has the title {info.title!r}: choose another with --title")

    def texts(self) -> dict[Path, str]:
        """What each file is to say."""
        description, loss = (_read(path.with_stem(self.model)) for path in self._modules)
        renamed = self._renamed(description, loss)
        description, loss = (self._python(text, renamed) for text in (description, loss))
        quoted = json.dumps(self.title, ensure_ascii=False)
        description = re.sub(r'\btitle="[^"]*"', lambda _: f"title={quoted}", description, count=1)
        description = re.sub(r"\border=\d+", f"order={self.order}", description, count=1)
        golden = f'''

def test_golden_{self.module}(train, whole):
    """It trains as {self.like} does; with another loss, hold it to numbers that are known."""
    assert train("{self.name}").history == whole("{self.like}").history
'''
        traces = json.loads(_read(TRACES))
        traces[self.name] = traces[self.like]
        ordered = {name: traces[name] for name in self.in_order}
        return {
            **dict(zip(self._modules, (description, loss), strict=True)),
            files.PARAMS: _with_entries(reading.text_of(files.PARAMS), self.name, self.like),
            GOLDEN: _read(GOLDEN) + golden,
            TRACES: json.dumps(ordered, indent=1) + "\n",
            PAGES / f"{self.name}.md": self._page(_read(PAGES / f"{self.like}.md")),
            INDEX: self._index(_read(INDEX)),
        }

    @property
    def _modules(self) -> tuple[Path, Path]:
        return DESCRIPTIONS / f"{self.module}.py", LOSSES / f"{self.module}.py"

    def _renamed(self, description: str, loss: str) -> dict[str, str]:
        """The other method's own classes, and what they are called here."""
        own = "".join(part.capitalize() for part in self.name.split("-"))
        method = re.findall(r"^METHOD = (\w+)$", loss, flags=re.M)
        hyperparameters = re.findall(r"^class (\w+)\(", description, flags=re.M)
        renamed = dict.fromkeys(method, own)
        renamed |= dict.fromkeys(hyperparameters, f"{own}Hyperparameters")
        for name in set(renamed.values()) & set(re.findall(r"\w+", description + loss)):
            raise UserError(f"the code of {self.like} uses the name {name}: choose another name")
        return renamed

    def _python(self, source: str, renamed: dict[str, str]) -> str:
        began = f'"""{self.title}, which began as a copy of {METHODS[self.like].title}."""'
        text = re.sub(r'\A""".*?"""', lambda _: began, source, count=1, flags=re.S)
        for old, name in renamed.items():
            text = re.sub(rf"\b{old}\b", name, text)
        return text.replace(
            f"from twf.study.methods.{self.model} import",
            f"from twf.study.methods.{self.module} import",
        )

    def _page(self, page: str) -> str:
        """The other method's page, with its names changed and a line that says so."""
        _, _, rest = page.partition("\n")
        rest = rest.replace(f"{self.model}.py", f"{self.module}.py")
        like = f"[{METHODS[self.like].title}]({self.like}.md)"
        return f"# {self.title}\n\nIt began as a copy of {like}, whose page this is so far.\n{rest}"

    def _index(self, index: str) -> str:
        """The table of methods with a row for this one, in its place."""
        before = self.in_order[self.in_order.index(self.name) - 1]
        found = re.findall(r"^(\|.*\| \[.+\]\((.+)\.md\) \|\n)", index, flags=re.M)
        rows = {name: row for row, name in found}
        above = lookup("row", rows, before, str(INDEX), "add it")
        like = METHODS[self.like].title
        row = f"| {self.title} | began as {like} | [{self.name}]({self.name}.md) |\n"
        return index.replace(above, above + row)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"no {path} in {Path.cwd()}: call this in the project's folder") from None


def _with_entries(text: str, name: str, like: str) -> str:
    """`params.yaml` with the values of `like` for `name` too, below them; all else stays."""
    values = yaml.load(text, reading.UniqueKeyLoader)  # noqa: S506
    lines = text.splitlines(keepends=True)
    root = yaml.compose(text, reading.UniqueKeyLoader)
    new: dict[int, str] = {}
    for benchmark, node in _at(root, "benchmarks"):
        methods = values["benchmarks"][benchmark.value]["methods"]
        if like not in methods:
            continue
        methods[name] = methods[like]
        flow = yaml.safe_dump(methods[like], default_flow_style=True, sort_keys=False, width=10**6)
        for key, value in _at(node, "methods"):
            if key.value == like:
                below = _last_line(key, value) + 1
                new[below] = f"{' ' * key.start_mark.column}{name}: {flow}"  # once in an anchor
    for below in sorted(new, reverse=True):
        lines.insert(below, new[below])
    changed = "".join(lines)
    try:
        as_meant = yaml.load(changed, reading.UniqueKeyLoader) == values  # noqa: S506
    except (yaml.YAMLError, UserError):
        as_meant = False
    if not as_meant:
        raise UserError(
            f"{files.PARAMS} has no room below {like}'s entries under benchmarks.*.methods; give "
            "each method lines of its own"
        )
    return changed


def _at(mapping: Any, key: str) -> list[tuple[Any, Any]]:
    """The entries of the mapping that stands under a key of another."""
    found = [value.value for name, value in mapping.value if name.value == key]
    return found[0] if found else []  # also where a merge brings it


def _last_line(key: Any, value: Any) -> int:
    """The last line of an entry; PyYAML ends a block where the next one begins."""
    if isinstance(value, yaml.ScalarNode) or value.flow_style:
        return max(key.start_mark.line, value.end_mark.line)  # an alias has its anchor's lines
    parts = [part if isinstance(part, tuple) else (part, part) for part in value.value]
    return max(_last_line(*part) for part in parts)
