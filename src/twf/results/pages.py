"""What the findings write: a table of estimates and figures in docs, and numbers in pages."""

from __future__ import annotations

from pathlib import Path

from twf.files import atomic
from twf.results.evidence import EVIDENCE
from twf.results.figures.findings import drawn
from twf.results.findings import Findings

PAGES = (Path("README.md"), Path("docs/findings.md"), Path("docs/measured.md"))


def write(folder: Path = EVIDENCE, docs: Path = Path("docs")) -> list[Path]:
    """Write the table of estimates and the figures into `docs`. Returns what was written."""
    found = Findings(folder)
    table = docs / "estimates.csv"
    with atomic(table) as partial:
        found.table().to_csv(partial, index=False, float_format="%.4f")
    written = [table]
    for name, drawing in drawn(found).items():
        with atomic(docs / f"{name}.svg") as partial:
            partial.write_text(drawing, encoding="utf-8")
        written.append(docs / f"{name}.svg")
    return written


def fill(check: bool = False, pages: tuple[Path, ...] = PAGES) -> list[Path]:
    """Write the evidence's numbers into the marked parts of pages. Returns those that differed.

    With `check`, nothing is written.
    """
    found, differed = Findings(), []
    for path in pages:
        text = path.read_text(encoding="utf-8")
        filled = found.filled(text)
        if filled != text:
            differed.append(path)
            if not check:
                with atomic(path) as partial:
                    partial.write_text(filled, encoding="utf-8")
    return differed
