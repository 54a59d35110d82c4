"""Weights that were trained elsewhere: read without running code, renamed, and checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from twf.errors import UserError, few
from twf.jobs.checkpoints import read_safetensors
from twf.learning.models.resnet import ResNet
from twf.study.params import Network

WRAPPERS = ("state_dict", "model")  # under which training scripts save the weights
# of what a network was wrapped in: DataParallel, the published code, torch.compile, Lightning
PREFIXES = ("module", "net", "wrappee", "model", "network")
CLASSIFIERS = ("classifier", "linear", "fc")  # the names of the last layer
ALIAS = "_features."  # where the published code's older networks name all layers once more


def read_network(file: Path, shape: Network, classes: int | None) -> ResNet:
    """The network whose weights are in `file`, a safetensors file or one of `torch.save`.

    It may have torchvision's names, those of the published code, or ours. `classes` is the number
    of classes that it must have; none takes the file's. Raises `UserError` that names the tensors
    which are missing, unexpected or of another shape, or hold values that no training gives.
    """
    tensors = read_weights(file)
    if "classifier.weight" not in tensors:
        expected = ", ".join(f"{name}.weight" for name in CLASSIFIERS)
        raise UserError(
            f"{file} has no classifier: none of {expected}, but {few(tensors)}; rename its tensors "
            "to torchvision's names"
        )
    network = ResNet(shape, len(tensors["classifier.weight"]) if classes is None else classes)
    needed = network.state_dict()
    # what counts batches decides nothing here, and PyTorch before 0.4.1 did not save it
    missing = [n for n in needed if n not in tensors and not n.endswith(".num_batches_tracked")]
    unexpected = [name for name in tensors if name not in needed]
    reshaped = [
        f"{name} {list(tensor.shape)} instead of {list(needed[name].shape)}"
        for name, tensor in tensors.items()
        if name in needed and tensor.shape != needed[name].shape
    ]
    problems = {
        "missing": missing,
        "unexpected": unexpected,
        "of another shape": reshaped,
        "not finite": [name for name, tensor in tensors.items() if not tensor.isfinite().all()],
        "a negative variance": [
            name
            for name, tensor in tensors.items()
            if name.endswith(".running_var") and (tensor < 0).any()
        ],
    }
    if any(problems.values()):
        lines = [f"{kind}: {few(names)}" for kind, names in problems.items() if names]
        raise UserError(
            f"{file} does not fit a {shape.architecture} of width {shape.width} with "
            f"{network.classifier.out_features} classes:\n  " + "\n  ".join(lines)
        )
    network.load_state_dict(tensors)
    return network


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a file by our names. Raises `UserError` that names what is wrong."""
    if file.is_dir():
        raise UserError(f"{file} is a folder: name the file of weights in it")
    if file.suffix == ".safetensors":
        tensors, _ = read_safetensors(file, remedy="put the weights there")
    else:
        tensors = _unwrap(file, _load(file))
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        ours = _our_name(name)
        if ours.startswith(ALIAS):
            continue
        if ours in renamed and not torch.equal(renamed[ours], tensor):
            raise UserError(f"{file} has two different tensors for {ours}; {name} is one of them")
        renamed[ours] = tensor
    return renamed


def _load(file: Path) -> Any:
    """What `torch.save` wrote, as long as it is made of tensors and containers."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True)  # noqa: TID251
    except FileNotFoundError:
        raise UserError(f"no {file}; put the weights there") from None
    except Exception as error:  # a damaged file can raise anything
        if asked := re.search(r"GLOBAL (\S+)", str(error)):
            raise UserError(
                f"{file} asks for {asked[1]}, which could run code; save only the weights: "
                "torch.save(network.state_dict(), file)"
            ) from None
        reason = str(error).partition("\n")[0]
        raise UserError(f"{file} cannot be read as weights ({reason}); bring it again") from None


def _unwrap(file: Path, content: Any) -> dict[str, Tensor]:
    """The tensors by name, out of what a training script saved around them."""
    while isinstance(content, dict):
        inner = [content[key] for key in WRAPPERS if isinstance(content.get(key), dict)]
        if not inner:
            break
        content = inner[0]
    if not isinstance(content, dict) or not content:
        raise UserError(f"{file} holds no tensors by name, as torch.save(network.state_dict()) has")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise UserError(
                f"{file}: {name!r} is no tensor; save only the weights, or put them under "
                f"{' or '.join(map(repr, WRAPPERS))}"
            )
    return content


def _our_name(name: str) -> str:
    name = name.replace("_orig_mod.", "")  # also where a part of the network was compiled
    name = re.sub(rf"^(?:(?:{'|'.join(PREFIXES)})\.)+", "", name)
    name = re.sub(rf"^(?:{'|'.join(CLASSIFIERS)})\.", "classifier.", name)
    return name.replace(".downsample.", ".shortcut.")
