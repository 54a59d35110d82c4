"""The registry of official archives: their addresses, sizes, checksums, licences and citations.

`registry.yaml` beside this module holds ours; the file that `TWF_REGISTRY` names adds a lab's own,
or replaces ours by name.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from twf import files
from twf.errors import UserError, explain, invalid_file, lookup
from twf.study import Plan, needed_data
from twf.study.params import Name, Params
from twf.study.reading import plain_values
from twf.study.types import Count, Strict

VARIABLE = "TWF_REGISTRY"
PACKAGED = Path(__file__).with_name("registry.yaml")
# A host, and no user name and password, which logs would show
ADDRESS = r"^(https?://[^/@\s][^@\s]*|file:///\S*)$"


def shown(text: str) -> str:
    """The text without what logs must not have of an address: user, password and query."""
    return re.sub(r"\?[^\s'\")]+", "?...", re.sub(r"://\S*@", "://...@", text))


FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
Address = Annotated[str, Field(pattern=ADDRESS)]
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class File(Strict):
    """One file of an archive: its size in bytes where known, its checksum, and its addresses."""

    size: Count | None = None
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    addresses: list[Address] = Field(default_factory=list)

    @model_validator(mode="after")
    def _one_checksum(self) -> File:
        if (self.md5 is None) == (self.sha256 is None):
            raise ValueError("give either 'md5' or 'sha256'")
        return self

    @property
    def checksum(self) -> str:
        """`md5:...` or `sha256:...`, as pooch has it."""
        return f"md5:{self.md5}" if self.md5 else f"sha256:{self.sha256}"


class Splits(Strict):
    """How many images each split has."""

    train: Count
    test: Count


class _Entry(Strict):
    title: str
    files: Annotated[dict[FileName, File], Field(min_length=1)]
    licence: str
    citation: str
    homepage: str


class ImagesEntry(_Entry):
    """A labelled image set."""

    kind: Literal["images"]
    format: Literal["cifar", "svhn", "tiny-imagenet", "cub200", "folders"]
    classes: Count
    images: Splits
    size: Count  # pixels along a side of the images that the fingerprints are of
    # `twf.data.store.Split.fingerprint` of each split
    fingerprints: dict[Literal["train", "test"], Fingerprint | None] = Field(default_factory=dict)

    def fingerprints_at(self, size: int) -> dict[str, str]:
        """The fingerprint of each split at `size` pixels, where known."""
        return {k: v for k, v in self.fingerprints.items() if v is not None and size == self.size}


class WeightsEntry(_Entry):
    """A pretrained network's weights."""

    kind: Literal["weights"]


Entry = ImagesEntry | WeightsEntry
Registry = dict[str, Entry]
_registry: TypeAdapter[Registry] = TypeAdapter(
    dict[Name, Annotated[Entry, Field(discriminator="kind")]]
)


def load() -> Registry:
    """All entries by name: the packaged ones, and those of the file that `TWF_REGISTRY` names.

    Raises `UserError` that names that file and the key where something in it is wrong.
    """
    own = os.environ.get(VARIABLE)
    return _packaged() | (_read(Path(own)) if own else {})


def entry(name: str) -> Entry:
    """The entry called `name`, or an error that says which there are."""
    return lookup("archive", load(), name, "the registry")


def images_entry(name: str) -> ImagesEntry:
    """The entry of a labelled image set called `name`, or an error."""
    named = entry(name)
    if named.kind != "images":
        raise UserError(f"the archive {name!r} holds {named.kind}, no images")
    return named


def needed(params: Params, plan: Plan) -> list[str]:
    """The entries that a study's data sets and sources are made from, in order."""
    sources = [params.sources[name] for name in plan.sources]
    archives = [
        getattr(params.datasets[name], "archive", None) for name in needed_data(params, plan)
    ]
    archives += [of_file(Path(source.weights)) for source in sources if source.weights is not None]
    return [name for name in load() if name in archives]


def of_file(path: Path) -> str | None:
    """The entry that a file in `archives/` belongs to; None for a user's own file."""
    return next((name for name in load() if files.archive_folder(name) == path.parent), None)


@functools.cache
def _packaged() -> Registry:
    return _read(PACKAGED)


def _read(path: Path) -> Registry:
    try:
        values = plain_values(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is no registry ({error}): {VARIABLE} names a YAML file of archives, or is "
            "unset"
        ) from None
    try:
        return _registry.validate_python(values)
    except ValidationError as error:
        # an entry's path has the kind that it was checked against
        raise invalid_file(path, [shown(problem) for problem in explain(error, tag=1)]) from None
