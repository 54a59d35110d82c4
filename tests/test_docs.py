"""Links of the documentation hold, and every method has a page."""

import re
from pathlib import Path

from support import PROJECT

from twf.study.methods import METHODS

PAGES = [*PROJECT.glob("*.md"), *(PROJECT / "docs").glob("**/*.md")]
LINK = re.compile(r"\[[^\]]*\]\((?![a-z]+:)([^()\s#]*)#?([^()\s]*)\)")


def anchors(page: Path) -> set[str]:
    """The headings of a page as GitHub names them in addresses."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_relative_links_point_to_files_and_headings_and_every_method_has_a_page() -> None:
    assert {PROJECT / "docs/methods" / f"{name}.md" for name in METHODS} <= set(PAGES)
    for page in PAGES:
        for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), f"{page.relative_to(PROJECT)} links to {path}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to #{anchor}"
