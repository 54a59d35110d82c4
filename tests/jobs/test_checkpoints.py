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
    with pytest.raises(UserError, match=f"{path.name}.*`twf pretrain {path.stem}`") as caught:
        checkpoints.load(path, asked)
    return str(caught.value)


def test_what_is_saved_is_loaded_and_only_as_the_network_it_is_of(path):
    loaded, expected = checkpoints.load(path, SMALL), network().state_dict()
    assert loaded.about == ABOUT
    torch.testing.assert_close(loaded.tensors, dict(expected), rtol=0, atol=0)
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
    damaged = [
        whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        for at in range(8, len(whole), len(whole) // 20)
    ]
    for content in (whole[:1000], *damaged):
        path.write_bytes(content)
        assert "delete" in refusal(path)


# Weights from elsewhere


def torchvisions(tensors: Tensors) -> Tensors:
    theirs = renamed(tensors, lambda name: name.replace(".shortcut.", ".downsample."))
    return renamed(theirs, lambda name: name.replace("classifier.", "fc."))


def published(tensors: Tensors) -> Tensors:
    """As older networks of the published code: all layers once more, and the last one too."""
    theirs = renamed(tensors, lambda name: name.replace("classifier", "linear"))
    return tensors | theirs | renamed(tensors, "_features.0.{}".format)


def wrapped(tensors: Tensors) -> Tensors:
    """Compiled, its first stage once more, and parallel."""
    inner = renamed(tensors, lambda name: name.replace("layer1.", "layer1._orig_mod."))
    return renamed(inner, "_orig_mod.module.net.{}".format)


def renamed(tensors: Tensors, rename: Callable[[str], str]) -> Tensors:
    return {rename(name): tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("names", [torchvisions, published, wrapped])
@pytest.mark.parametrize(("shape", "kind"), [(SMALL, "pth"), (WIDE, "safetensors")], ids=str)
def test_known_names_become_ours(tmp_path, shape, names, kind):
    expected, file = network(shape).state_dict(), tmp_path / f"weights.{kind}"
    (torch.save if kind == "pth" else save_file)(names(expected), file)
    read, about = checkpoints.read_network(file, shape, classes=None)
    assert about == {}
    torch.testing.assert_close(read.state_dict(), expected, rtol=0, atol=0)


def test_the_names_turned_back_are_torchvisions(torchvision):
    """So that the test above speaks of files that exist."""
    with torch.device("meta"):
        theirs = torchvision.models.resnet50(weights=None).state_dict()
        ours = ResNet(Network(architecture="resnet50", width=64), 1000).state_dict()
    assert {n: t.shape for n, t in torchvisions(ours).items()} == {
        n: t.shape for n, t in theirs.items()
    }


def refused(file: Path, classes: int | None = None) -> str:
    """The message of weights that are refused; it names the file."""
    with pytest.raises(UserError, match=str(file)) as caught:
        checkpoints.read_network(file, SMALL, classes)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_what_is_torn_or_no_file_of_weights_is_named(tmp_path, kind):
    file = tmp_path / f"weights.{kind}"
    (torch.save if kind == "pth" else save_file)(network().state_dict(), file)
    for content in (file.read_bytes()[:-200], b"<html>404</html>", b""):
        file.write_bytes(content)
        refused(file)
    file.unlink()
    refused(file)
    file.mkdir()
    refused(file)


WRAPPED = {"state_dict": {"bn1.bias": torch.zeros(3)}, "epoch": 3}


@pytest.mark.parametrize("content", [torch.zeros(3), {}, WRAPPED, network()], ids=type)
@pytest.mark.parametrize("zipped", [True, False])  # published weights of 2022 often are not
def test_a_file_of_other_things_than_tensors_by_name_is_named_with_the_remedy(
    tmp_path, content, zipped
):
    """A whole network too, whose file would run code."""
    file = tmp_path / "weights.pth"
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    message = refused(file)
    assert "network.state_dict()" in message
    assert not isinstance(content, ResNet) or "twf.learning.models.resnet.ResNet" in message


# How each kind of mistake is named: no such tensor, another one, another last value, other names.
WRONG: list[tuple[str, str, Any]] = [
    (r"resnet18 of width 4 with 3 .*:\n.*[Mm]issing.*bn1.bias", "bn1.bias", None),
    (r"[Mm]issing.*classifier.weight", "classifier.weight", None),
    (r"[Uu]nexpected.*more.weight", "more.weight", torch.zeros(2)),
    (r"conv1.weight: .*8, 3, 3, 3", "conv1.weight", torch.zeros(8, 3, 3, 3)),
    (r"[Uu]nexpected.*backbone.conv1.weight.*\[...\]$", "", "backbone.{}"),
    (r"no training gives: layer4.1.bn2.bias", "layer4.1.bn2.bias", float("nan")),
    (r"no training gives: conv1.weight", "conv1.weight", float("inf")),
    (r"no training gives: bn1.running_var", "bn1.running_var", -1e-6),
]


@pytest.mark.parametrize(("message", "name", "value"), WRONG)
@pytest.mark.parametrize("classes", [3, None])
def test_weights_that_do_not_fit_are_refused_by_tensor(tmp_path, message, name, value, classes):
    file, tensors = tmp_path / "weights.pth", dict(network().state_dict())
    if isinstance(value, str):
        tensors = renamed(tensors, value.format)
    elif isinstance(value, float):
        tensors[name].view(-1)[-1:] = value
    else:
        tensors[name] = value
    torch.save({n: tensor for n, tensor in tensors.items() if tensor is not None}, file)
    assert re.search(message, refused(file, classes), re.MULTILINE)
