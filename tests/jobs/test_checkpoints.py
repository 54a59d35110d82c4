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
    path = tmp_path / "mine.safetensors"
    checkpoints.save(path, network(), ABOUT)
    return path


def refused(read: Callable[..., Any], file: Path, *words: Any) -> str:
    """The message of a file that is refused; it names the file."""
    with pytest.raises(UserError, match=str(file)) as caught:
        read(file, *words)
    return str(caught.value)


def test_what_is_saved_is_loaded_and_only_as_the_network_it_is_of(path):
    loaded, expected = checkpoints.load(path, SMALL), network().state_dict()
    assert loaded.about == ABOUT
    torch.testing.assert_close(loaded.tensors, dict(expected), rtol=0, atol=0)
    for asked in (WIDE, Network(architecture="resnet18", width=8)):
        message = refused(checkpoints.load, path, asked)
        assert str(SMALL.model_dump()) in message and str(asked.model_dump()) in message


def test_the_same_network_gives_the_same_bytes_with_the_permissions_of_any_file(path):
    """Or DVC would see a change where there is none. The library's own order differs each time."""
    before = path.read_bytes()
    for _ in range(20):
        checkpoints.save(path, network(), ABOUT)
        assert path.read_bytes() == before
    (path.parent / "new").touch()
    assert path.stat().st_mode == (path.parent / "new").stat().st_mode


def test_a_missing_foreign_torn_or_damaged_file_is_named_with_the_remedy(path):
    whole, foreign = path.read_bytes(), path.with_name("foreign.safetensors")
    assert "`twf pretrain foreign`" in refused(checkpoints.load, foreign, SMALL)
    save_file(load_file(path), foreign)  # without what made it
    assert "`twf pretrain foreign`" in refused(checkpoints.load, foreign, SMALL)
    path.write_bytes(whole[:1000])
    assert "delete it; make it with `twf pretrain mine`" in refused(checkpoints.load, path, SMALL)
    for at in range(8, len(whole), len(whole) // 20):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        assert "delete" in refused(checkpoints.load, path, SMALL)


# Weights from elsewhere


def renamed(tensors: Tensors, *changes: tuple[str, str]) -> Tensors:
    """With names in which patterns are replaced, one after the other."""
    for pattern, other in changes:
        tensors = {re.sub(pattern, other, name): t.clone() for name, t in tensors.items()}
    return tensors


TORCHVISIONS = ("shortcut", "downsample"), ("classifier", "fc")
NAMES: dict[str, Callable[[Tensors], Tensors]] = {
    "torchvision": lambda tensors: renamed(tensors, *TORCHVISIONS),
    # as older networks of the published code: the last layer, and all of them, once more
    "published": lambda tensors: (
        tensors
        | renamed(tensors, ("classifier", "linear"))
        | renamed(tensors, ("^", "_features.0."))
    ),
    "wrapped": lambda tensors: renamed(
        tensors, ("layer1", "layer1._orig_mod"), ("^", "_orig_mod.module.net.")
    ),
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(("shape", "kind"), [(SMALL, "pth"), (WIDE, "safetensors")], ids=str)
def test_known_names_become_ours(tmp_path, shape, names, kind):
    expected, file = network(shape).state_dict(), tmp_path / f"weights.{kind}"
    (torch.save if kind == "pth" else save_file)(NAMES[names](expected), file)
    read, about = checkpoints.read_network(file, shape, classes=None)
    assert about == {}
    torch.testing.assert_close(read.state_dict(), expected, rtol=0, atol=0)


def test_the_names_turned_back_are_torchvisions(torchvision):
    """So that the test above speaks of files that exist."""
    with torch.device("meta"):
        theirs = torchvision.models.resnet50(weights=None).state_dict()
        ours = ResNet(Network(architecture="resnet50", width=64), 1000).state_dict()
    shapes = {name: tensor.shape for name, tensor in theirs.items()}
    assert {n: t.shape for n, t in renamed(ours, *TORCHVISIONS).items()} == shapes


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_what_is_torn_or_no_file_of_weights_is_named(tmp_path, kind):
    file = tmp_path / f"weights.{kind}"
    (torch.save if kind == "pth" else save_file)(network().state_dict(), file)
    for content in (file.read_bytes()[:-200], b"<html>404</html>", b""):
        file.write_bytes(content)
        refused(checkpoints.read_network, file, SMALL, None)
    file.unlink()
    refused(checkpoints.read_network, file, SMALL, None)
    file.mkdir()
    refused(checkpoints.read_network, file, SMALL, None)


WRAPPED = {"state_dict": {"bn1.bias": torch.zeros(3)}, "epoch": 3}


@pytest.mark.parametrize("zipped", [True, False])  # published weights of 2022 often are not
def test_a_file_of_other_things_than_tensors_by_name_is_named_with_the_remedy(tmp_path, zipped):
    """A whole network too, whose file would run code."""
    file = tmp_path / "weights.pth"
    for content in (torch.zeros(3), {}, WRAPPED, network()):
        torch.save(content, file, _use_new_zipfile_serialization=zipped)
        message = refused(checkpoints.read_network, file, SMALL, None)
        assert "network.state_dict()" in message
    assert "twf.learning.models.resnet.ResNet" in message


# How each kind of mistake is named: no such tensor, another one, another last value, other names.
WRONG: list[tuple[str, str, Any]] = [
    (r"resnet18 of width 4 with 3 .*:\n.*[Mm]issing.*bn1.bias", "bn1.bias", None),
    (r"[Mm]issing.*classifier.weight", "classifier.weight", None),
    (r"[Uu]nexpected.*more.weight", "more.weight", torch.zeros(2)),
    (r"classifier.weight: ", "classifier.weight", torch.tensor(1.0)),
    (r"conv1.weight: .*8, 3, 3, 3", "conv1.weight", torch.zeros(8, 3, 3, 3)),
    (r"[Uu]nexpected.*backbone.conv1.weight.*\[...\]$", "", "backbone."),
    (r"no training gives: layer4.1.bn2.bias", "layer4.1.bn2.bias", float("nan")),
    (r"no training gives: conv1.weight", "conv1.weight", float("inf")),
    (r"no training gives: bn1.running_var", "bn1.running_var", -1e-6),
    (r"conv1.weight in torch.int8: ", "conv1.weight", torch.zeros(4, 3, 3, 3, dtype=torch.int8)),
]


@pytest.mark.parametrize(("message", "name", "value"), WRONG)
@pytest.mark.parametrize("classes", [3, None])
def test_weights_that_do_not_fit_are_refused_by_tensor(tmp_path, message, name, value, classes):
    file, tensors = tmp_path / "weights.pth", dict(network().state_dict())
    if isinstance(value, str):
        tensors = renamed(tensors, ("^", value))
    elif isinstance(value, float):
        tensors[name].view(-1)[-1:] = value
    else:
        tensors[name] = value
    torch.save({n: tensor for n, tensor in tensors.items() if tensor is not None}, file)
    told = refused(checkpoints.read_network, file, SMALL, classes)
    assert re.search(message, told, re.MULTILINE)
