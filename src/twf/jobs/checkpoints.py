"""Networks as safetensors files, with what made them as metadata."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialized
from torch import Tensor

from twf.errors import UserError
from twf.files import atomic, tidy_safetensors
from twf.learning.models.resnet import ResNet
from twf.study.params import Network


@dataclass(frozen=True)
class Checkpoint:
    """A pretrained network: its tensors by name, and how it was made."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]

    def network(self) -> ResNet:
        """The network itself, with the source's classifier."""
        shape = Network.model_validate(self.about["network"])
        network = ResNet(shape, len(self.tensors["classifier.weight"]))
        network.load_state_dict(self.tensors)
        return network


def save(path: Path, network: ResNet, about: dict[str, Any]) -> None:
    """Write a network, and `about` (plain values) into the metadata, with a digest of both."""
    tensors = {name: tensor.contiguous().cpu() for name, tensor in network.state_dict().items()}
    text = json.dumps(about)
    metadata = {"about": text, "sha256": digest(text, tensors)}
    with atomic(path) as partial:
        partial.write_bytes(tidy_safetensors(serialized(tensors, metadata)))


def digest(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a text, and of tensors (on the CPU) by name: of a network where there is no text.

    A network that is trained again with the same result is so the same network, whenever that was.
    """
    sha = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        sha.update(name.encode())
        sha.update(tensors[name].flatten().view(torch.uint8).numpy().data)
    return sha.hexdigest()


def load(path: Path, network: Network) -> Checkpoint:
    """Read a checkpoint and check that it holds a `network`."""
    remedy = f"make it with `twf pretrain train {path.stem}`"
    tensors, metadata = read_safetensors(path, remedy)
    if "about" not in metadata:
        raise UserError(
            f"{path} does not say what made it; {remedy}, which also takes published weights"
        )
    about = _undamaged(path, tensors, metadata, f"delete it; {remedy}")
    if about["network"] != network.model_dump():
        raise UserError(
            f"{path} holds a {about['network']}, its plan asks for {network.model_dump()}; {remedy}"
        )
    return Checkpoint(tensors, about)


def about(path: Path) -> dict[str, Any] | None:
    """What a file says of itself; None where it is none that `save` has written.

    Raises `UserError` where such a file is damaged.
    """
    if path.suffix != ".safetensors":
        return None
    tensors, metadata = read_safetensors(path, remedy="put the weights there")
    if "about" not in metadata:
        return None
    return _undamaged(path, tensors, metadata, "bring it again")


def _undamaged(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], remedy: str
) -> dict[str, Any]:
    """What a file says of itself, held to its digest."""
    if metadata.get("sha256") != digest(metadata["about"], tensors):
        raise UserError(f"{path} is damaged, or of an older version of twf; {remedy}")
    return dict(json.loads(metadata["about"]))


def read_safetensors(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file. Raises `UserError` that names it and `remedy`."""
    if not path.exists():
        raise UserError(f"no {path}; {remedy}")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it; {remedy}") from None
