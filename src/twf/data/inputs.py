"""Whether data sets and networks are as `params.yaml` asks: their headers say what made them.

A file that is not there is not held to anything, nor is a file to what its header does not say: one
of an older version of twf says less. No tensor is read, and no torch is needed here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from twf import files
from twf.errors import UserError

if TYPE_CHECKING:
    from twf.study import params
    from twf.study.params import Params

SHOWN = 4  # changes that a reason names
MADE_OF = "made_of"  # in a data set's header: its `made_of` in params.yaml, as JSON
FILE_SHA256 = "file_sha256"  # of a user's file, in `MADE_OF`
IN_PLACE_OF = "in_place_of"  # in an imported network's: what params.yaml had, if that is another


class Held(NamedTuple):
    """A file's header held to params.yaml."""

    changes: list[str]  # as `seed: 0 -> 1`; of none, the file is as asked, or not there
    unsaid: set[str]  # keys of params.yaml that decide the content too, which it leaves out

    @property
    def why(self) -> str:
        """The changes as words."""
        return shortened(self.changes)


def data(name: str, dataset: params.Dataset) -> Held:
    """The prepared file of a data set, held to its entry in params.yaml."""
    found = header(files.data_file(name))
    metadata = found.get("__metadata__", {})
    try:
        if MADE_OF in metadata:
            written = json.loads(metadata[MADE_OF])
        else:  # it is of an older version, whose tensors have a shape
            classes = len(json.loads(metadata["classes"]))
            written = {"classes": classes, "size": found["train_images"]["shape"][1]}
            for split in ("train", "test"):
                images = found[f"{split}_labels"]["shape"][0]
                written[f"{split}_per_class"] = images // classes
    except (KeyError, TypeError, ValueError, ZeroDivisionError):  # it is no prepared data set
        written = {}
    differs = changes(written, dataset.made_of)
    if dataset.reader == "archive" and FILE_SHA256 in written:
        file = Path(dataset.file)
        if file.is_file() and written[FILE_SHA256] != sha256(file):
            differs.append(f"another {file}")
    return Held(differs, _unsaid(written, dataset.made_of))


def network(params: Params, name: str) -> Held:
    """The checkpoint of a source, held to its entry in params.yaml and to the data that are there.

    An imported one is what its importer took it for: its own recipe, or that of params.yaml then.
    """
    source, planned = params.sources[name], params.recipe(name)
    about = about_network(files.checkpoint_file(name))
    if about is None:
        return Held([], _unsaid({}, planned))
    if IN_PLACE_OF in about:
        planned["weights"] = source.weights
        return Held(changes(about[IN_PLACE_OF], planned), set())
    found = changes(about, planned)
    if source.weights is not None:
        named = Path(source.weights)
        if "weights" not in about:
            found.append(f"weights: none -> {named}")
        elif named.is_file() and sha256(named) != about.get("weights_sha256"):
            found.append(f"another {named}")
    if "weights" in about:
        return Held(found, set())
    if not found and source.trained_on is not None:
        path = files.data_file(source.trained_on)
        now = header(path).get("__metadata__", {}).get("train_fingerprint")
        if data(source.trained_on, params.datasets[source.trained_on]).changes:
            found.append(f"{path} is stale")
        elif now is not None and now != about.get("data_fingerprint", now):
            found.append(f"another {path}")
    return Held(found, _unsaid(about, planned))


def require_data(name: str, dataset: params.Dataset) -> None:
    """Raise `UserError` where the prepared file is stale."""
    if (held := data(name, dataset)).changes:
        raise UserError(
            f"{files.data_file(name)} is stale ({held.why}): `twf data prepare {name}` makes it "
            "anew"
        )


def require_network(params: Params, name: str) -> None:
    """Raise `UserError` where the checkpoint is stale."""
    if (held := network(params, name)).changes:
        raise UserError(
            f"{files.checkpoint_file(name)} is stale ({held.why}): `twf pretrain train {name}` "
            "makes it anew"
        )


def require_named_weights(params: Params, name: str) -> None:
    """Raise `UserError` where the weights that a source names say that they were trained otherwise.

    Its `pretraining` is to be the one that gave them: making the checkpoint anew would not help.
    """
    file = Path(str(params.sources[name].weights))
    if found := changes(about_network(file) or {}, params.recipe(name)):
        raise UserError(
            f"{file} was trained otherwise than sources.{name} says ({shortened(found)}): correct "
            "that in params.yaml, or leave its 'weights' out, to have it trained"
        )


def is_named(source: params.Source, file: Path) -> bool:
    """Whether a file has the weights that a source names: by content, or name where none is there.

    A copy of them may lie elsewhere.
    """
    if source.weights is None:
        return False
    named = Path(source.weights)
    return sha256(named) == sha256(file) if named.is_file() else named.name == file.name


def is_imported(path: Path) -> bool:
    """Whether a checkpoint has weights from elsewhere."""
    return "weights" in (about_network(path) or {})


def about_network(path: Path) -> dict[str, Any] | None:
    """What a safetensors file of a network says of itself; None where it says nothing."""
    try:
        return dict(json.loads(header(path)["__metadata__"]["about"]))
    except (KeyError, TypeError, ValueError):
        return None


def header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file; empty where there is none. No tensor is read.

    Raises `UserError` where this user may not read the file.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > path.stat().st_size:
                return {}
            found = json.loads(file.read(length))
    except (FileNotFoundError, ValueError):
        return {}
    except PermissionError as error:
        raise UserError(f"{path}: {error.strerror}: let this user read it") from None
    return found if isinstance(found, dict) else {}


def changes(
    written: Mapping[str, Any], planned: Mapping[str, Any], complete: bool = False
) -> list[str]:
    """What differs, as `lr: 0.05 -> 0.03`; what one alone has counts where both are `complete`."""
    old, new = _flat(written), _flat(planned)
    keys = old | new if complete else [key for key in new if key in old]
    return [
        f"{key.removeprefix('hyperparameters.').removeprefix('pretraining.')}: "
        f"{_said(old.get(key))} -> {_said(new.get(key))}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def shortened(found: list[str]) -> str:
    """The first of them, and how many more there are."""
    more = [f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return ", ".join([*found[:SHOWN], *more])


def sha256(path: Path) -> str:
    """SHA-256 of a file, computed once as long as it stays as it is: many runs share few files."""
    at = path.stat()
    return _sha256(path.absolute(), at.st_mtime_ns, at.st_size)


@cache
def _sha256(path: Path, time: int, size: int) -> str:
    return files.sha256(path)


def tensors_sha256(path: Path) -> str:
    """SHA-256 of a safetensors file's tensors, by name, without what the header says of them.

    So a network that is trained again with the same result is the same network, whenever that was.
    Computed once, as `sha256`. Raises `UserError` where the file cannot be read.
    """
    at = path.stat()
    return _tensors_sha256(path.absolute(), at.st_mtime_ns, at.st_size)


@cache
def _tensors_sha256(path: Path, time: int, size: int) -> str:
    places = header(path)
    places.pop("__metadata__", None)
    found = hashlib.sha256()
    with path.open("rb") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        for name in sorted(places):
            first, end = places[name]["data_offsets"]
            file.seek(start + first)
            found.update(name.encode())
            found.update(file.read(end - first))
    return found.hexdigest()


def _unsaid(written: Mapping[str, Any], planned: Mapping[str, Any]) -> set[str]:
    return _flat(planned).keys() - _flat(written).keys()


def _flat(values: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Nested values by their keys, which dots join."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{place}{key}.")
        else:
            flat[f"{place}{key}"] = value
    return flat


def _said(value: Any) -> str:
    return "none" if value is None else str(value)
