"""The registry of official archives: their addresses, sizes, checksums, licences and citations.

`registry.yaml` beside this module holds ours; the file that `TWF_REGISTRY` names adds a lab's own,
or replaces ours by name.
"""

import functools
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from twf import files
from twf.errors import UserError, explain, invalid_file, lookup
from twf.study import Plan
from twf.study.params import Name, Params
from twf.study.reading import plain_values
from twf.study.types import Count, Strict

VARIABLE = "TWF_REGISTRY"
PACKAGED = Path(__file__).with_name("registry.yaml")

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# A host, and no user name and password, which logs would show
Address = Annotated[str, Field(pattern=r"^(https?://[^/@\s][^@\s]*|file:///\S*)$")]
Fingerprint = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class File(Strict):
    """One file of an archive: its checksum, as pooch has it, its addresses, and its bytes."""

    checksum: Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")]
    addresses: list[Address] = Field(default_factory=list)
    size: Count | None = None


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
    images: Annotated[dict[Literal["train", "test"], Count], Field(min_length=2)]
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


@functools.cache
def _read(path: Path) -> Registry:
    try:
        return _registry.validate_python(plain_values(path.read_text(encoding="utf-8"), path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path} is no registry ({error}): {VARIABLE} names a YAML file of archives, or is "
            "unset"
        ) from None
    except ValidationError as error:
        # an entry's path has the kind that it was checked against
        raise invalid_file(path, explain(error, tag=1)) from None


def load() -> Registry:
    """All entries by name: the packaged ones, and those of the file that `TWF_REGISTRY` names.

    Raises `UserError` that names that file and the key where something in it is wrong.
    """
    own = os.environ.get(VARIABLE)
    return _read(PACKAGED) | (_read(Path(own)) if own else {})


def entry(name: str) -> Entry:
    """The entry called `name`, or an error that says which there are."""
    return lookup("archive", load(), name, "the registry")


def images_entry(name: str) -> ImagesEntry:
    """The entry of a labelled image set called `name`, or an error."""
    images = {name: each for name, each in load().items() if each.kind == "images"}
    return lookup("archive of images", images, name, "the registry")


def needed(params: Params, plan: Plan) -> list[str]:
    """The entries to fetch for a study, in order: of data not prepared yet, and of weights."""
    datasets = {name: params.datasets[name] for name in plan.data}
    archives = [
        dataset.archive
        for name, dataset in datasets.items()
        if dataset.reader == "official" and not files.data_file(name).exists()
    ]
    weights = [params.sources[name].weights for name in plan.sources]
    archives += [of_file(Path(file)) or "" for file in weights if file is not None]
    return [name for name in load() if name in archives]


def of_file(path: Path) -> str | None:
    """The entry that a file in `archives/` belongs to; None for a user's own file."""
    return next((name for name in load() if files.archive_folder(name) == path.parent), None)
