"""What `twf data list` and `twf data show` print of the registry."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twf import files
from twf.data import registry
from twf.data.fetch import status

COLOURS = {"present": "green", "imported": "green", "incomplete": "red", "missing": "yellow"}
MIB = 2**20


def show_all() -> None:
    """Print a line per archive: name, title, images (training + test), size and status."""
    table = Table()
    for column in ("name", "title", "images", "MiB", "status"):
        numbers = column in ("images", "MiB")
        table.add_column(column, justify="right" if numbers else "left", no_wrap=column == "name")
    for name, entry in registry.load().items():
        images = f"{entry.images.train:,} + {entry.images.test:,}" if entry.kind == "images" else ""
        sizes = [file.size for file in entry.files.values()]
        known = [size for size in sizes if size is not None]
        size = f"{sum(known) / MIB:,.0f}" if len(known) == len(sizes) else "unknown"
        state = status(name, entry)
        table.add_row(name, escape(entry.title), images, size, f"[{COLOURS[state]}]{state}[/]")
    console = Console()
    console.print(table)
    console.print("next: twf data fetch NAME")


def show(name: str) -> None:
    """Print all that the registry has of one archive."""
    entry = registry.entry(name)
    lines = [f"{name}: {entry.title}", f"homepage: {entry.homepage}", f"licence: {entry.licence}"]
    if entry.kind == "images":
        lines.append(
            f"images: {entry.images.train:,} for training, {entry.images.test:,} for testing, "
            f"{entry.classes} classes"
        )
        for split, fingerprint in entry.fingerprints:
            side = f"{split} fingerprint at {entry.size} pixels"
            lines.append(f"{side}: {fingerprint or 'not known'}")
    for file_name, file in entry.files.items():
        size = f"{file.size:,} bytes" if file.size else "unknown size"
        checksum = f"MD5 {file.md5}" if file.md5 else f"SHA-256 {file.sha256}"
        lines.append(f"{files.archive_folder(name) / file_name}: {size}, {checksum}")
        lines += [f"  {address}" for address in file.addresses]
    lines += [f"status: {status(name, entry)}", "citation:", entry.citation.rstrip()]
    print("\n".join(lines))
