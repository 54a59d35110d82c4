"""Weights from elsewhere: their names, their wrappings, and what is named where they do not fit."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from twf.errors import UserError
from twf.jobs.weights import read_network, read_weights
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.study.params import Network

SMALL = Network(architecture="resnet18", width=4)
WIDE = Network(architecture="resnet50", width=4)

Tensors = dict[str, Tensor]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.pth"


def network(shape: Network = SMALL, classes: int = 3) -> ResNet:
    with seeded(0, "test"):
        return ResNet(shape, classes)


def renamed(rename: Callable[[str], str]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {rename(name): tensor for name, tensor in tensors.items()}


torchvisions = renamed(
    lambda name: name.replace(".shortcut.", ".downsample.").replace("classifier.", "fc.")
)


def with_aliases(tensors: Tensors) -> Tensors:
    """As older networks of the published code: all layers once more, and the last one too."""
    layers = ["conv1", "bn1", "layer1", "layer2", "layer3", "layer4"]
    more = {
        name.replace(layer, f"_features.{i}", 1): tensor
        for i, layer in enumerate(layers)
        for name, tensor in tensors.items()
        if name.startswith(layer)
    }
    again = {n.replace("classifier", "linear"): t for n, t in tensors.items() if "classifier" in n}
    return tensors | again | more


NAMES: dict[str, Callable[[Tensors], Tensors]] = {
    "ours": lambda tensors: tensors,
    "torchvision": torchvisions,
    "published ResNet-18": renamed(lambda name: name.replace("classifier", "linear")),
    "published ResNet-50": renamed(lambda name: name.replace(".shortcut.", ".downsample.")),
    "aliases": with_aliases,
    "prefixes": renamed("_orig_mod.module.net.{}".format),
    "a compiled part": renamed(lambda name: name.replace("layer1.", "layer1._orig_mod.")),
    "no counts": lambda tensors: {  # PyTorch before 0.4.1 did not save them
        name: tensor for name, tensor in tensors.items() if "num_batches" not in name
    },
}


@pytest.mark.parametrize(
    ("shape", "names", "kind"),
    [
        *((SMALL, name, "pth") for name in NAMES),
        *((WIDE, name, "pth") for name in ("torchvision", "published ResNet-50", "aliases")),
        (SMALL, "prefixes", "safetensors"),
    ],
    ids=str,
)
def test_known_names_become_ours(tmp_path: Path, shape: Network, names: str, kind: str) -> None:
    expected = network(shape).state_dict()
    file = tmp_path / f"weights.{kind}"
    (torch.save if kind == "pth" else save_file)(NAMES[names](expected), file)
    read = read_network(file, shape, classes=None)[0].state_dict()
    assert read.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in read.items())


WRAPPINGS: dict[str, Callable[[Tensors], Any]] = {
    "none": lambda tensors: tensors,
    "state_dict": lambda tensors: {"state_dict": tensors, "epoch": 3, "best": 71.2},
    "model": lambda tensors: {"model": OrderedDict(tensors), "optimizer": {"lr": [0.1]}},
    "both": lambda tensors: {"model": {"state_dict": tensors}},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("zipped", [True, False])  # published weights of 2022 often are not
def test_what_a_training_script_saves_around_the_weights_is_taken_off(
    file: Path, wrapping: str, zipped: bool
) -> None:
    content = WRAPPINGS[wrapping](network().state_dict())
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    assert read_weights(file).tensors.keys() == network().state_dict().keys()


def test_the_names_turned_back_are_torchvisions(torchvision: Any) -> None:
    """So that the tests above speak of files that exist."""
    theirs = torchvision.models.resnet50(weights=None).state_dict()
    with torch.device("meta"):
        ours = ResNet(Network(architecture="resnet50", width=64), 1000).state_dict()
    named_alike = torchvisions(ours)
    assert {n: t.shape for n, t in named_alike.items()} == {n: t.shape for n, t in theirs.items()}


def refusal(file: Path, *network: Any) -> str:
    """The message of a file that is refused; it names the file."""
    with pytest.raises(UserError) as caught:
        read_network(file, *network) if network else read_weights(file)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_a_file_that_would_run_code_is_refused_with_what_to_save_instead(file: Path) -> None:
    """A whole network, for example; tests/test_security.py has files that mean harm."""
    torch.save(network(), file)
    message = refusal(file)
    assert "twf.learning.models.resnet.ResNet" in message and "network.state_dict()" in message


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
@pytest.mark.parametrize("kept", [0, 0.99, "a folder", "<html>404</html>"])
def test_what_is_torn_or_no_file_of_weights_is_named(file: Path, kind: str, kept: Any) -> None:
    file = file.with_suffix(f".{kind}")
    (torch.save if kind == "pth" else save_file)(network().state_dict(), file)
    content = file.read_bytes()
    file.unlink()
    if kept == "a folder":
        file.mkdir()
    elif isinstance(kept, str):
        file.write_text(kept)
    else:
        file.write_bytes(content[: int(kept * len(content))])
    refusal(file)


def itself() -> dict[str, Any]:
    content: dict[str, Any] = {}
    content["model"] = content
    return content


@pytest.mark.parametrize("content", [torch.zeros(3), [torch.zeros(3)], {}, {"epoch": 3}, itself()])
def test_a_file_without_tensors_by_name_is_named(file: Path, content: Any) -> None:
    torch.save(content, file)
    refusal(file)


def filled(name: str, value: float) -> Callable[[Tensors], object]:
    """Put a value into a tensor, which is copied first."""

    def change(tensors: Tensors) -> None:
        tensors[name] = tensors[name].clone()
        tensors[name].view(-1)[-1] = value

    return change


# How each kind of mistake is named, and how weights come to have it.
WRONG: list[tuple[str, Callable[[Tensors], object]]] = [
    (r"resnet18 of width 4 with 3 .*:\n.*[Mm]issing.*bn1.bias", lambda t: t.pop("bn1.bias")),
    (r"[Uu]nexpected.*more.weight", lambda t: t.update({"more.weight": torch.zeros(2)})),
    (r"conv1.weight: .*8, 3, 3, 3", lambda t: t.update({"conv1.weight": torch.zeros(8, 3, 3, 3)})),
    (r"[Mm]issing.*classifier.weight", lambda t: t.pop("classifier.weight")),
    (
        r"[Uu]nexpected.*backbone.conv1.weight.*\[...\]$",
        lambda t: [t.update({f"backbone.{n}": t.pop(n)}) for n in list(t) if n[:2] != "cl"],
    ),
    (r"no training gives: layer4.1.bn2.bias", filled("layer4.1.bn2.bias", float("nan"))),
    (r"no training gives: conv1.weight", filled("conv1.weight", float("inf"))),
    (r"no training gives: bn1.running_var", filled("bn1.running_var", -1e-6)),
]


@pytest.mark.parametrize(("message", "change"), WRONG)
@pytest.mark.parametrize("classes", [3, None])
def test_weights_that_do_not_fit_are_refused_by_tensor(
    file: Path, message: str, change: Callable[[Tensors], object], classes: int | None
) -> None:
    tensors = dict(network().state_dict())
    change(tensors)
    torch.save(tensors, file)
    assert re.search(message, refusal(file, SMALL, classes), re.MULTILINE)
