"""The hash of the code that a number depends on: what changes it, and what does not."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import PROJECT

from twf.errors import UserError
from twf.study import code
from twf.study.code import LOOP, PRETRAINING, code_hash, method_module, parsed

# What Python 3.11 and 3.12 parse to other trees, or print otherwise.
ANY_PYTHON = '''"""Documented."""
from __future__ import annotations
import twf.learning.other  # followed
from twf.learning import another as renamed

def f(x: int, *rest: str, scale: float = 2.0, **more: object) -> str:
    """Documented."""
    text = f"{x!r:>{rest[0]}} {{braces}} {more['a']}" "joined"
    match x:
        case 1 | 2:
            return text
        case [first, *_]:
            return u"first"
    return f"{x=}" if (y := x ** 2) > 1_000 else ""

class C:
    z: int = 0x10
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of `learning/` whose code is hashed in place of the project's."""
    shutil.copytree(PROJECT / "src/twf/learning", tmp_path / "twf/learning")
    monkeypatch.setattr(code.twf, "__file__", str(tmp_path / "twf/__init__.py"))
    parsed.cache_clear()
    yield tmp_path / "twf/learning"
    parsed.cache_clear()


def changes(file: Path, edit: Callable[[str], str], *roots: str) -> bool:
    """Whether an edit of a file changes the hash over `roots`."""
    before = code_hash(*roots)
    file.write_text(edit(file.read_text()))
    parsed.cache_clear()
    return code_hash(*roots) != before


@pytest.mark.parametrize(
    ("file", "method", "used"),
    [
        ("loop.py", "er", True),
        ("tasks.py", "er", True),  # the order of classes, the held-out split
        ("replay/buffer.py", "er", True),
        ("methods/er.py", "er", True),
        ("methods/derpp.py", "derpp-ewc", True),  # by the method that builds on it
        ("methods/oewc.py", "derpp-ewc", True),
        ("models/gates.py", "twf", True),
        ("models/gates.py", "er", False),
        ("pretraining.py", "er", False),
        ("pretraining.py", None, True),
        ("methods/twf.py", None, False),
    ],
)
def test_what_a_method_uses_changes_its_hash_and_nothing_else_does(
    package: Path, file: str, method: str | None, used: bool
) -> None:
    """Pretraining, which has no method, has a hash of its own."""
    roots = [LOOP, method_module(method)] if method else [PRETRAINING]
    assert changes(package / file, lambda text: f"{text}\nMORE = 1\n", *roots) == used


def test_relative_imports_are_followed(package: Path) -> None:
    (package / "methods/mine.py").write_text("from .derpp import Derpp\nMETHOD = Derpp\n")
    (package / "methods/yours.py").write_text("from . import mine\n")
    root = method_module("yours")
    assert changes(package / "methods/derpp.py", lambda text: f"{text}\nMORE = 1\n", root)


def test_comments_docstrings_and_layout_change_nothing(package: Path) -> None:
    def reworded(text: str) -> str:
        return re.sub(r'"""(?=\S)', '"""In other words: ', text).replace("\n\n", "\n\n# anew\n")

    for file in ("loop.py", "tasks.py", "methods/er.py"):
        assert not changes(package / file, reworded, LOOP, method_module("er")), file


def test_a_loss_that_is_no_python_is_named_with_its_line(package: Path) -> None:
    with pytest.raises(UserError, match=r"methods/er\.py, line \d+: "):
        changes(package / "methods/er.py", lambda text: f"{text})\n", method_module("er"))


def test_the_hash_is_the_same_on_every_python(package: Path) -> None:
    for path in package.glob("*.py"):
        path.unlink()
    (package / "__init__.py").write_text("")
    (package / "loop.py").write_text(ANY_PYTHON)
    (package / "other.py").write_text("a = [*range(3)][1:]\n")
    (package / "another.py").write_text("def g(): return lambda x, /, y: (yield)\n")
    parsed.cache_clear()
    assert code_hash(LOOP) == ("db074c9d52b0cc138d4ad2933bf3fd791cf2c76c17b2588f76936f45c416879c")


def test_a_described_method_without_a_loss_is_named_with_the_file_to_write() -> None:
    with pytest.raises(UserError, match=r"'my-method'.*learning/methods/my_method\.py"):
        method_module("my-method")
