"""Weights that were trained elsewhere: read without running code, renamed, and checked."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.learning.models.resnet import ResNet
from twf.study.params import Network

REMEDY = "save only the weights: torch.save(network.state_dict(), file)"
# of what a network was wrapped in: DataParallel, the published code, torch.compile, Lightning
PREFIXES = ("module", "net", "wrappee", "model", "network")
CLASSIFIERS = ("classifier", "linear", "fc")  # the names of the last layer
ALIAS = "_features."  # where the published code's older networks name all layers once more


def read_network(file: Path, shape: Network, classes: int | None) -> tuple[ResNet, dict[str, Any]]:
    """The network whose weights are in `file`, a safetensors file or one of `torch.save`.

    And what the file says of itself; empty where it is no checkpoint of ours.

    It may have torchvision's names, those of the published code, or ours. `classes` is the number
    of classes that it must have; none takes the file's. Raises `UserError` that names the tensors
    which are missing, unexpected or of another shape, or hold values that no training gives.
    """
    weights = read_weights(file)
    tensors = weights.tensors
    if classes is None:
        classes = len(tensors["classifier.weight"]) if "classifier.weight" in tensors else 1
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
            raise UserError(
                f"{file} has values that no training gives: {name} has NaN, an infinity, or a "
                "negative variance"
            )
    return network, weights.about


def read_weights(file: Path) -> Checkpoint:
    """The tensors of a file by our names. Raises `UserError` that names what is wrong."""
    if file.suffix == ".safetensors":
        weights = checkpoints.read(file, remedy="put the weights there")
    else:
        weights = Checkpoint(_load(file), about={})
    named = {_our_name(name): tensor for name, tensor in weights.tensors.items()}
    ours = {name: tensor for name, tensor in named.items() if not name.startswith(ALIAS)}
    return Checkpoint(ours, weights.about)


def _load(file: Path) -> dict[str, Tensor]:
    """The tensors by name that `torch.save` wrote; no code in the file is run."""
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251
    except FileNotFoundError:
        raise UserError(f"no {file}; put the weights there") from None
    except Exception as error:  # a damaged file can raise anything
        if asked := re.search(r"GLOBAL (\S+)", str(error)):
            raise UserError(f"{file} asks for {asked[1]}, which could run code; {REMEDY}") from None
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file} cannot be read as weights ({reason}); bring it again") from None
    entries = content.items() if isinstance(content, dict) else ()
    if not entries or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in entries):
        raise UserError(f"{file} holds other things than tensors by name; {REMEDY}")
    return dict(content)


def _our_name(name: str) -> str:
    name = name.replace("_orig_mod.", "")  # also where a part of the network was compiled
    name = re.sub(rf"^(?:(?:{'|'.join(PREFIXES)})\.)+", "", name)
    name = re.sub(rf"^(?:{'|'.join(CLASSIFIERS)})\.", "classifier.", name)
    return name.replace(".downsample.", ".shortcut.")
