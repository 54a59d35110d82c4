"""The official archives: `registry.yaml` beside this module, or what `TWF_REGISTRY` names."""

import functools
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from twf import files
from twf.errors import UserError, explain, invalid_file, lookup
from twf.study import Plan
from twf.study.params import Name, Params
from twf.study.products import Products
from twf.study.reading import plain_values
from twf.study.types import Count, Strict

VARIABLE = "TWF_REGISTRY"
PACKAGED = Path(__file__).with_name("registry.yaml")

FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
# A host, and no user name and password, which logs would show
Address = Annotated[str, Field(pattern=r"^(https?://[^/@\s][^@\s]*|file:///\S*)$")]


class File(Strict):
    """One file of an archive: its checksum, as pooch has it, and its addresses, tried in order."""

    checksum: Annotated[str, Field(pattern=r"^(md5:[0-9a-f]{32}|sha256:[0-9a-f]{64})$")]
    addresses: list[Address]


class Entry(Strict):
    """Labelled images, or a pretrained network's weights, which have neither format nor images."""

    title: str
    homepage: str
    licence: str
    citation: str
    files: dict[FileName, File]
    format: Literal["cifar", "svhn", "tiny-imagenet", "cub200"] | None = None
    images: dict[Literal["train", "test"], Count] = Field(default_factory=dict)  # how many
    size: Count = 1  # pixels along a side of the images that the fingerprints are of
    # `twf.data.store.Split.fingerprint` of each split
    fingerprints: dict[str, str] = Field(default_factory=dict)

    def fingerprints_at(self, size: int) -> dict[str, str]:
        """The fingerprint of each split at `size` pixels, where known."""
        return self.fingerprints if size == self.size else {}


_registry = TypeAdapter(dict[Name, Entry])


@functools.cache
def _read(path: Path) -> dict[str, Entry]:
    try:
        return _registry.validate_python(plain_values(path.read_bytes(), path))
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise UserError(f"{problem}: correct or unset {VARIABLE}, which names it") from None
    except ValidationError as error:
        raise invalid_file(path, explain(error)) from None


def load() -> dict[str, Entry]:
    """All entries by name. Raises `UserError` that names the file and the key that is wrong."""
    return _read(Path(os.environ.get(VARIABLE) or PACKAGED))


def entry(name: str) -> Entry:
    """The entry called `name`, or an error that says which there are."""
    return lookup("archive", load(), name, "the registry")


def needed(params: Params, plan: Plan) -> list[str]:
    """The entries to fetch for a study, in order: of data and networks that are not as planned."""
    products = Products(params)
    datasets = [params.datasets[name] for name in plan.data if products.data(name).state != "done"]
    wanted = {dataset.archive for dataset in datasets if dataset.reader == "official"}
    missing = (name for name in plan.sources if products.network(name).state != "done")
    weights = (params.sources[name].weights for name in missing)
    wanted |= {of_file(Path(file)) or "" for file in weights if file is not None}
    return [name for name in load() if name in wanted]


def of_file(path: Path) -> str | None:
    """The entry that a file in `archives/` belongs to; None for a user's own file."""
    folder, name = path.parent.parent, path.parent.name
    found = load().get(name) if folder == files.ARCHIVES else None
    return name if found and path.name in found.files else None
