"""What would run if files were more than data, and the pages it might run in."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class Malicious:
    """A pickle of it calls `open(file, "w")`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.file), "w")


class Elements(HTMLParser):
    """Gathers the names and attributes of all elements, and all text but that of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.names and self.names[-1] != "script":
            self.text += data

    def values(self, name: str) -> list[str]:
        """All values of an attribute."""
        return [value or "" for attribute, value in self.attributes if attribute == name]
