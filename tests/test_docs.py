"""The documentation against the code: pages that must be there, and links that must hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from project import PROJECT

from twf.study.methods import METHODS

METHOD_PAGES = PROJECT / "docs" / "methods"
PAGES = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").glob("**/*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in addresses."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_relative_links_point_to_files_and_headings(page):
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(PROJECT)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.relative_to(PROJECT)} links to {link}"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_with_its_hyperparameters_and_switches(name):
    page = METHOD_PAGES / f"{name}.md"
    assert page.exists(), f"write docs/methods/{name}.md, like those of other methods"
    text = page.read_text(encoding="utf-8")
    _, _, section = text.partition("\n## Hyperparameters\n")
    keys = set(re.findall(r"`(\w+)`", section.partition("\n## ")[0])) - {"paper", "published"}
    assert keys == set(METHODS[name].hyperparameters.model_fields)
    named = set(re.findall(r"\bF\d+\b", text))
    assert set(METHODS[name].switches) <= named


def test_the_index_has_every_method_in_order():
    index = (METHOD_PAGES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| \[(.+)\]\((.+)\.md\) \|$", index, flags=re.M)
    assert rows == [(info.title, name, name) for name, info in METHODS.items()]
