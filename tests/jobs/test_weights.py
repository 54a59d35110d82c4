"""Weights from elsewhere: their names, their wrappings, and what is named where they do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from twf.errors import UserError
from twf.jobs.checkpoints import read_network
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.study.params import Network

SMALL = Network(architecture="resnet18", width=4)
WIDE = Network(architecture="resnet50", width=4)

Tensors = dict[str, Tensor]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "weights.pth"


def weights(shape: Network = SMALL) -> Tensors:
    with seeded(0, "test"):
        return ResNet(shape, 3).state_dict()


def renamed(rename: Callable[[str], str]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {rename(name): tensor for name, tensor in tensors.items()}


torchvisions = renamed(
    lambda name: name.replace(".shortcut.", ".downsample.").replace("classifier.", "fc.")
)


def with_aliases(tensors: Tensors) -> Tensors:
    """As older networks of the published code: all layers once more, and the last one too."""
    again = {f"_features.0.{name}": tensor for name, tensor in tensors.items()}
    last = {n.replace("classifier", "linear"): t for n, t in tensors.items() if "classifier" in n}
    return tensors | again | last


NAMES: dict[str, Callable[[Tensors], Tensors]] = {
    "torchvision": torchvisions,
    "published": renamed(lambda name: name.replace("classifier", "linear")),
    "aliases": with_aliases,
    "prefixes": renamed("_orig_mod.module.net.{}".format),
    "a compiled part": renamed(lambda name: name.replace("layer1.", "layer1._orig_mod.")),
    "no counts": lambda tensors: {  # PyTorch before 0.4.1 did not save them
        name: tensor for name, tensor in tensors.items() if "num_batches" not in name
    },
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(("shape", "kind"), [(SMALL, "pth"), (WIDE, "safetensors")], ids=str)
def test_known_names_become_ours(tmp_path: Path, shape: Network, names: str, kind: str) -> None:
    expected = weights(shape)
    file = tmp_path / f"weights.{kind}"
    copies = {name: tensor.clone() for name, tensor in NAMES[names](expected).items()}
    (torch.save if kind == "pth" else save_file)(copies, file)
    network, about = read_network(file, shape, classes=None)
    read = network.state_dict()
    assert read.keys() == expected.keys() and about == {}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in read.items())


def test_the_names_turned_back_are_torchvisions(torchvision: Any) -> None:
    """So that the tests above speak of files that exist."""
    theirs = torchvision.models.resnet50(weights=None).state_dict()
    with torch.device("meta"):
        ours = ResNet(Network(architecture="resnet50", width=64), 1000).state_dict()
    named_alike = torchvisions(ours)
    assert {n: t.shape for n, t in named_alike.items()} == {n: t.shape for n, t in theirs.items()}


def refusal(file: Path, shape: Network = SMALL, classes: int | None = None) -> str:
    """The message of a file that is refused; it names the file."""
    with pytest.raises(UserError) as caught:
        read_network(file, shape, classes)
    assert str(file) in str(caught.value)
    return str(caught.value)


def test_a_file_that_would_run_code_is_refused_with_what_to_save_instead(file: Path) -> None:
    """A whole network, for example; tests/test_security.py has files that mean harm."""
    torch.save(ResNet(SMALL, 3), file)
    message = refusal(file)
    assert "twf.learning.models.resnet.ResNet" in message and "network.state_dict()" in message


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>404</html>", "cut", "a folder"])
def test_what_is_torn_or_no_file_of_weights_is_named(file: Path, kind: str, content: Any) -> None:
    file = file.with_suffix(f".{kind}")
    if content == "a folder":
        file.mkdir()
    elif content == "cut":
        (torch.save if kind == "pth" else save_file)(weights(), file)
        file.write_bytes(file.read_bytes()[:-200])
    else:
        file.write_bytes(content)
    refusal(file)


WRAPPED = {"state_dict": {"bn1.bias": torch.zeros(3)}, "epoch": 3}


@pytest.mark.parametrize("content", [torch.zeros(3), [torch.zeros(3)], {}, WRAPPED], ids=str)
@pytest.mark.parametrize("zipped", [True, False])  # published weights of 2022 often are not
def test_a_file_of_other_things_than_tensors_by_name_is_named_with_the_remedy(
    file: Path, content: Any, zipped: bool
) -> None:
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    assert "network.state_dict()" in refusal(file)


def filled(name: str, value: float) -> Callable[[Tensors], object]:
    """Put a value into a tensor."""
    return lambda tensors: tensors[name].view(-1)[-1:].fill_(value)


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
    tensors = dict(weights())
    change(tensors)
    torch.save(tensors, file)
    assert re.search(message, refusal(file, SMALL, classes), re.MULTILINE)
