"""The documentation against the code: pages that must be there, and links that must hold."""

from __future__ import annotations

import re
from pathlib import Path

from project import PROJECT

from twf.study.methods import METHODS

PAGES = [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("**/*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)")


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in addresses."""
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_relative_links_point_to_files_and_headings_and_every_method_has_a_page() -> None:
    pages = {PROJECT / "docs/methods" / f"{name}.md" for name in METHODS}
    assert pages <= set(PAGES)
    for page in PAGES:
        for link in LINK.findall(prose(page)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.relative_to(PROJECT)} links to {link}"
            if anchor:
                assert anchor in anchors(target), f"{page.relative_to(PROJECT)} links to {link}"
