"""Checkpoints as files, and weights from elsewhere: what is taken, and what is named and refused.

tests/test_security.py has files that mean harm.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from twf.errors import UserError
from twf.jobs import checkpoints
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.study.params import Network

SMALL = Network(architecture="resnet18", width=4)
WIDE = Network(architecture="resnet50", width=4)
ABOUT = {"network": SMALL.model_dump(), "data": "letters", "test_accuracy": 98.5}

Tensors = dict[str, Tensor]


def network(shape: Network = SMALL) -> ResNet:
    """Of three classes, with always the same weights."""
    with seeded(0, "test"):
        return ResNet(shape, classes=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of `network()`."""
    path = tmp_path / "checkpoints" / "mine.safetensors"
    checkpoints.save(path, network(), ABOUT)
    return path


def refusal(path: Path, asked: Network = SMALL) -> str:
    """What is said of a checkpoint that is refused; it names the file and what makes it anew."""
    with pytest.raises(UserError) as caught:
        checkpoints.load(path, asked)
    message = str(caught.value)
    assert path.name in message and f"`twf pretrain {path.stem}" in message
    return message


def test_what_is_saved_is_loaded_and_only_as_the_network_it_is_of(path):
    loaded, expected = checkpoints.load(path, SMALL), network().state_dict()
    assert loaded.about == ABOUT and loaded.tensors.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.tensors.items())
    for asked in (WIDE, Network(architecture="resnet18", width=8)):
        message = refusal(path, asked)
        assert str(SMALL.model_dump()) in message and str(asked.model_dump()) in message


def test_the_same_network_gives_the_same_bytes_with_the_permissions_of_any_file(path, tmp_path):
    """Or DVC would see a change where there is none. The library's own order differs each time."""
    again = tmp_path / "again.safetensors"
    for _ in range(20):
        checkpoints.save(again, network(), ABOUT)
        assert again.read_bytes() == path.read_bytes()
    (path.parent / "new").touch()
    assert path.stat().st_mode == (path.parent / "new").stat().st_mode


def test_a_missing_foreign_torn_or_damaged_file_is_named_with_the_remedy(path):
    refusal(path.with_name("other.safetensors"))
    save_file(load_file(path), path.with_name("foreign.safetensors"))  # without what made it
    refusal(path.with_name("foreign.safetensors"))
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    assert "delete" in refusal(path)
    for at in range(8, len(whole), len(whole) // 20):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert "delete" in refusal(path)


# Weights from elsewhere


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
    expected = network(shape).state_dict()
    file = tmp_path / f"weights.{kind}"
    copies = {name: tensor.clone() for name, tensor in NAMES[names](expected).items()}
    (torch.save if kind == "pth" else save_file)(copies, file)
    read, about = checkpoints.read_network(file, shape, classes=None)
    tensors = read.state_dict()
    assert tensors.keys() == expected.keys() and about == {}
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors.items())


def test_the_names_turned_back_are_torchvisions(torchvision: Any) -> None:
    """So that the tests above speak of files that exist."""
    theirs = torchvision.models.resnet50(weights=None).state_dict()
    with torch.device("meta"):
        ours = ResNet(Network(architecture="resnet50", width=64), 1000).state_dict()
    named_alike = torchvisions(ours)
    assert {n: t.shape for n, t in named_alike.items()} == {n: t.shape for n, t in theirs.items()}


def refused(file: Path, classes: int | None = None) -> str:
    """The message of weights that are refused; it names the file."""
    with pytest.raises(UserError) as caught:
        checkpoints.read_network(file, SMALL, classes)
    assert str(file) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>404</html>", "cut", "a folder"])
def test_what_is_torn_or_no_file_of_weights_is_named(path: Path, kind: str, content: Any) -> None:
    file = path.with_name(f"weights.{kind}")
    if content == "a folder":
        file.mkdir()
    elif content == "cut":
        (torch.save if kind == "pth" else save_file)(network().state_dict(), file)
        file.write_bytes(file.read_bytes()[:-200])
    else:
        file.write_bytes(content)
    refused(file)


WRAPPED = {"state_dict": {"bn1.bias": torch.zeros(3)}, "epoch": 3}


@pytest.mark.parametrize(
    "content",
    [torch.zeros(3), [torch.zeros(3)], {}, WRAPPED, network()],
    ids=lambda c: type(c).__name__,
)
@pytest.mark.parametrize("zipped", [True, False])  # published weights of 2022 often are not
def test_a_file_of_other_things_than_tensors_by_name_is_named_with_the_remedy(
    tmp_path: Path, content: Any, zipped: bool
) -> None:
    """A whole network too, whose file would run code."""
    file = tmp_path / "weights.pth"
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    message = refused(file)
    assert "network.state_dict()" in message
    assert not isinstance(content, ResNet) or "twf.learning.models.resnet.ResNet" in message


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
    tmp_path: Path, message: str, change: Callable[[Tensors], object], classes: int | None
) -> None:
    file, tensors = tmp_path / "weights.pth", dict(network().state_dict())
    change(tensors)
    torch.save(tensors, file)
    assert re.search(message, refused(file, classes), re.MULTILINE)
