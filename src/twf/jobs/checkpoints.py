"""Networks, and the states of unfinished runs, as safetensors files that say what made them."""

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
    """Tensors by name, of a pretrained network for example, and plain values: how it was made."""

    tensors: dict[str, Tensor]
    about: dict[str, Any]


def save(path: Path, network: ResNet, about: dict[str, Any]) -> None:
    """Write a network, and `about`, plain values, into the metadata."""
    tensors = {name: tensor.contiguous().cpu() for name, tensor in network.state_dict().items()}
    write(path, Checkpoint(tensors, about))


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write a file with a digest of its tensors (on the CPU) and of what it says of them."""
    text = json.dumps(checkpoint.about)
    metadata = {"about": text, "sha256": digest(text, checkpoint.tensors)}
    with atomic(path) as partial:
        partial.write_bytes(tidy_safetensors(serialized(checkpoint.tensors, metadata)))


def digest(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 of a text, and of tensors (on the CPU) by name: of a network where there is no text.

    A network that is trained again with the same result is so the same network, whenever that was.
    """
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
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read ({error}); delete it; {remedy}") from None
    text = metadata.get("about", "{}")
    if "about" in metadata and metadata.get("sha256") != digest(text, tensors):
        raise UserError(f"{path} is damaged, or of an older version of twf; delete it; {remedy}")
    return Checkpoint(tensors, json.loads(text))


def load(path: Path, network: Network) -> Checkpoint:
    """Read a checkpoint and check that it holds a `network`."""
    remedy = f"make it with `twf pretrain train {path.stem}`"
    checkpoint = read(path, remedy)
    if not checkpoint.about:
        raise UserError(f"{path} does not say what made it; {remedy}, also of published weights")
    if (shape := checkpoint.about["network"]) != network.model_dump():
        raise UserError(
            f"{path} holds a {shape}, its plan asks for {network.model_dump()}; {remedy}"
        )
    return checkpoint
