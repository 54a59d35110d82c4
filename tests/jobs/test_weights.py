"""Weights from elsewhere: their names, their wrappings, and what is said where they do not fit."""

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


def network(shape: Network = SMALL, classes: int = 3) -> ResNet:
    with seeded(0, "test"):
        return ResNet(shape, classes)


def torchvisions(tensors: Tensors) -> Tensors:
    return {
        name.replace(".shortcut.", ".downsample.").replace("classifier.", "fc."): tensor
        for name, tensor in tensors.items()
    }


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
    "published ResNet-18": lambda t: {n.replace("classifier", "linear"): v for n, v in t.items()},
    "published ResNet-50": lambda tensors: {
        name.replace(".shortcut.", ".downsample."): tensor for name, tensor in tensors.items()
    },
    "aliases": with_aliases,
    "module.": lambda tensors: {f"module.{name}": tensor for name, tensor in tensors.items()},
    "net.": lambda tensors: {f"net.{name}": tensor for name, tensor in tensors.items()},
    "both": lambda tensors: {f"module.net.{name}": tensor for name, tensor in tensors.items()},
    "no counts": lambda tensors: {
        name: tensor for name, tensor in tensors.items() if "num_batches" not in name
    },
    "half precision": lambda tensors: {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in tensors.items()
    },
}


@pytest.mark.parametrize("shape", [SMALL, WIDE], ids=lambda shape: shape.architecture)
@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_known_names_become_ours(tmp_path: Path, shape: Network, names: str, kind: str) -> None:
    ours = network(shape)
    if names == "half precision":
        ours.load_state_dict({k: v.half() for k, v in ours.state_dict().items()})
    theirs = NAMES[names](ours.state_dict())
    file = tmp_path / f"weights.{kind}"
    if kind == "pth":
        torch.save(theirs, file)
    else:
        save_file({name: tensor.clone() for name, tensor in theirs.items()}, file)
    read = read_network(file, shape, classes=None)
    expected = ours.state_dict()
    assert read.state_dict().keys() == expected.keys()
    for name, tensor in read.state_dict().items():
        assert torch.equal(tensor, expected[name]) and tensor.dtype == expected[name].dtype


WRAPPINGS: dict[str, Callable[[Tensors], Any]] = {
    "state_dict": lambda tensors: {"state_dict": tensors, "epoch": 3, "best": 71.2},
    "model": lambda tensors: {"model": OrderedDict(tensors), "optimizer": {"lr": [0.1]}},
    "both": lambda tensors: {"model": {"state_dict": tensors}},
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_what_a_training_script_saves_around_the_weights_is_taken_off(
    tmp_path: Path, wrapping: str
) -> None:
    torch.save(WRAPPINGS[wrapping](network().state_dict()), tmp_path / "weights.pth")
    read = read_weights(tmp_path / "weights.pth")
    assert read.keys() == network().state_dict().keys()


def test_files_before_zip_are_read(tmp_path: Path) -> None:
    """Published weights of 2022 and earlier often are such files."""
    file = tmp_path / "weights.pth"
    torch.save(network().state_dict(), file, _use_new_zipfile_serialization=False)
    assert read_weights(file).keys() == network().state_dict().keys()


def test_the_names_turned_back_are_torchvisions(torchvision: Any) -> None:
    """So that the tests above speak of files that exist."""
    theirs = torchvision.models.resnet50(weights=None).state_dict()
    with torch.device("meta"):
        ours = ResNet(Network(architecture="resnet50", width=64), 1000).state_dict()
    renamed = torchvisions(ours)
    assert {n: t.shape for n, t in renamed.items()} == {n: t.shape for n, t in theirs.items()}


class Malicious:
    """A pickle of it calls `open(file, "w")`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.file), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, zipped: bool
) -> None:
    file, trace = tmp_path / "weights.pth", tmp_path / "it ran"
    content = network().state_dict() | {"more": Malicious(trace)}
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UserError, match=r"weights.pth asks for _?io.open, which could run code"):
        read_weights(file)
    assert not trace.exists()


def test_a_whole_network_is_refused_with_what_to_save(tmp_path: Path) -> None:
    torch.save(network(), tmp_path / "weights.pth")
    message = (
        r"asks for twf.learning.models.resnet.ResNet.*torch.save\(network.state_dict\(\), file\)"
    )
    with pytest.raises(UserError, match=message):
        read_weights(tmp_path / "weights.pth")


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_a_torn_file_is_named(tmp_path: Path, kind: str, kept: float) -> None:
    file = tmp_path / f"weights.{kind}"
    (torch.save if kind == "pth" else save_file)(network().state_dict(), file)
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(UserError, match=rf"weights.{kind} cannot be read"):
        read_weights(file)


def test_what_is_no_file_of_weights_is_named(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    file.write_text("<html>404</html>")
    with pytest.raises(UserError, match=r"weights.pth cannot be read as weights"):
        read_weights(file)
    for content in (torch.zeros(3), [torch.zeros(3)], {}):
        torch.save(content, file)
        with pytest.raises(UserError, match=r"weights.pth holds no tensors by name"):
            read_weights(file)
    torch.save({"epoch": 3, "weights": {"a": torch.zeros(3)}}, file)
    with pytest.raises(UserError, match=r"'epoch' is no tensor.*'state_dict' or 'model'"):
        read_weights(file)


Change = Callable[[Tensors], object]
WRONG: dict[str, Change] = {
    r"missing: layer1.0.conv1.weight$": lambda t: t.pop("layer1.0.conv1.weight"),
    r"unexpected: more.weight$": lambda t: t.update({"more.weight": torch.zeros(2)}),
    r"of another shape: conv1.weight \[8, 3, 3, 3\] instead of \[4, 3, 3, 3\]$": lambda t: t.update(
        {"conv1.weight": torch.zeros(8, 3, 3, 3)}
    ),
    r"missing: conv1.weight, bn1.weight, bn1.bias, bn1.running_mean and 9\d more$": lambda t: [
        t.pop(name) for name in list(t) if not name.startswith("classifier.")
    ],
    r"has no classifier: none of classifier.weight, linear.weight, fc.weight": lambda t: t.pop(
        "classifier.weight"
    ),
    r"has two different tensors for classifier.bias": lambda t: t.update(
        {"fc.bias": torch.ones(3)}
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_weights_that_do_not_fit_are_told_apart(tmp_path: Path, message: str) -> None:
    tensors = dict(network().state_dict())
    WRONG[message](tensors)
    torch.save(tensors, tmp_path / "weights.pth")
    with pytest.raises(UserError) as caught:
        read_network(tmp_path / "weights.pth", SMALL, classes=3)
    assert str(tmp_path / "weights.pth") in str(caught.value)
    assert re.search(message, str(caught.value), re.MULTILINE), str(caught.value)


@pytest.mark.parametrize(
    ("asked", "classes", "said"),
    [
        (Network(architecture="resnet18", width=8), 3, "a resnet18 of width 8 with 3 classes"),
        (WIDE, 3, "a resnet50 of width 4 with 3 classes"),
        (SMALL, 10, "a resnet18 of width 4 with 10 classes"),
    ],
)
def test_another_network_is_refused(
    tmp_path: Path, asked: Network, classes: int, said: str
) -> None:
    torch.save(network().state_dict(), tmp_path / "weights.pth")
    with pytest.raises(UserError, match=rf"weights.pth does not fit {said}"):
        read_network(tmp_path / "weights.pth", asked, classes)
