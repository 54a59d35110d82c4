"""Networks and states of unfinished runs as safetensors files; and weights from elsewhere."""

import hashlib
import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialized
from torch import Tensor

from twf.errors import UserError
from twf.files import atomic
from twf.learning.models.resnet import ResNet
from twf.study.params import Network

REMEDY = "save only the weights: torch.save(network.state_dict(), file)"
# of what a network was wrapped in: DataParallel, the published code, torch.compile, Lightning
PREFIXES = r"^(?:(?:module|net|wrappee|model|network)\.)+"
CLASSIFIERS = r"^(?:linear|fc)\."  # other names of the last layer
ALIAS = "_features."  # where the published code's older networks name all layers once more


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, of a pretrained network for example, and plain values: how it was made."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]


def save(path: Path, network: ResNet, about: dict[str, Any]) -> None:
    """Write a network, and `about`, plain values, into the metadata."""
    tensors = {name: tensor.contiguous().cpu() for name, tensor in network.state_dict().items()}
    write(path, Checkpoint(tensors, about))


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a file with a digest of its tensors (on the CPU) and of what it says of them."""
    sha = digest(json.dumps(checkpoint.about), checkpoint.tensors)
    # one entry, as safetensors writes several in an order that changes each time
    metadata = {"about": json.dumps({"sha256": sha, **checkpoint.about})}
    with atomic(path) as partial:
        partial.write_bytes(serialized(checkpoint.tensors, metadata))


def digest(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a text and of tensors (on the CPU) by name; of a network, the text is empty."""
    sha = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return sha.hexdigest()


def read(path: Path, remedy: str) -> Checkpoint:
    """What a file holds; `about` is empty where it does not say.

    Raises `UserError` that names the file and `remedy` where it is missing or damaged.
    """
    if not path.exists():
        raise UserError(f"no {path}; {remedy}")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        about = dict(json.loads(metadata.get("about", "{}")))
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it; {remedy}") from None
    sha = about.pop("sha256", metadata.get("sha256"))  # beside `about` in older files
    if "about" in metadata and sha != digest(json.dumps(about), tensors):
        raise UserError(f"{path} is damaged, or of an older version of twf; delete it; {remedy}")
    return Checkpoint(tensors, about)


def load(path: Path, network: Network) -> Checkpoint:
    """Read a checkpoint and check that it holds a `network`."""
    remedy = f"make it with `twf pretrain {path.stem}`, also of published weights"
    checkpoint, asked = read(path, remedy), network.model_dump()
    if (shape := checkpoint.about.get("network", "network that says nothing of itself")) != asked:
        raise UserError(f"{path} holds a {shape}, its plan asks for {asked}; {remedy}")
    return checkpoint


def read_network(file: Path, shape: Network, classes: int | None) -> tuple[ResNet, dict[str, Any]]:
    """The network whose weights are in `file`, a safetensors file or one of `torch.save`.

    And what the file says of itself, if it is a checkpoint of ours. It may have torchvision's
    names, those of the published code, or ours. `classes` is the number of classes that it must
    have; None takes the file's. Raises `UserError` that names the tensors which are missing,
    unexpected or of another shape, or hold values that no training gives.
    """
    ours = file.suffix == ".safetensors"
    weights = read(file, "put the weights there") if ours else Checkpoint(_read_pickled(file), {})
    named: dict[str, Tensor] = {}
    for name, tensor in weights.tensors.items():
        first = named.setdefault(_our_name(name), tensor)
        if first is not tensor and not torch.equal(first, tensor):
            several = f"{file} has several tensors for {_our_name(name)}"
            raise UserError(f"{several}, the last of them {name}: save the weights of one network")
    tensors = {name: tensor for name, tensor in named.items() if not name.startswith(ALIAS)}
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() and not name.endswith(".num_batches_tracked"):
            raise UserError(f"{file} has {name} in {tensor.dtype}: save the weights as floats")
    head = tensors.get("classifier.weight", torch.empty(1)).shape
    classes = classes or max((1, *head[:1]))
    network = ResNet(shape, classes)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:  # it names each tensor
        lines = [textwrap.shorten(line, 300) for line in str(error).splitlines()[1:]]
        raise UserError(
            f"{file} does not fit a {shape.architecture} of width {shape.width} with {classes} "
            "classes:\n  " + "\n  ".join(lines)
        ) from None
    for name, tensor in network.state_dict().items():
        if not tensor.isfinite().all() or (name.endswith(".running_var") and (tensor < 0).any()):
            problem = f"{name} has NaN, an infinity, or a negative variance"
            raise UserError(f"{file} has values that no training gives: {problem}")
    return network, weights.about


def _read_pickled(file: Path) -> dict[str, Tensor]:
    """The tensors by name that `torch.save` wrote; no code in the file is run."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251
    except Exception as error:  # a damaged file can raise anything
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"{asked[1]} could run code" if asked else str(error).partition("\n")[0]
        raise UserError(f"{file} cannot be read as weights ({reason}); {REMEDY}") from None
    entries = content.items() if isinstance(content, dict) else ()
    if not entries or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in entries):
        raise UserError(f"{file} holds other things than tensors by name; {REMEDY}")
    return dict(content)


def _our_name(name: str) -> str:
    name = re.sub(PREFIXES, "", name.replace("_orig_mod.", ""))  # also of a compiled part
    return re.sub(CLASSIFIERS, "classifier.", name).replace(".downsample.", ".shortcut.")
