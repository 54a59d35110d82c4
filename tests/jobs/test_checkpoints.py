"""Checkpoints as files: what is saved is loaded, and only by the network it is of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from twf.errors import UserError
from twf.jobs import checkpoints
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.study.params import Network

SMALL = Network(architecture="resnet18", width=4)
ABOUT = {"network": SMALL.model_dump(), "data": "letters", "test_accuracy": 98.5}


def network(width: int = 4) -> ResNet:
    """Of three classes, with always the same weights."""
    with seeded(0, "test"):
        return ResNet(Network(architecture="resnet18", width=width), classes=3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of `network()`."""
    path = tmp_path / "checkpoints" / "mine.safetensors"
    checkpoints.save(path, network(), ABOUT)
    return path


def test_what_is_saved_is_loaded(path):
    loaded = checkpoints.load(path, SMALL)
    assert loaded.about == ABOUT
    expected = network().state_dict()
    assert loaded.tensors.keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.tensors.items())


def refusal(path: Path, network: Network = SMALL) -> str:
    """What is said of a checkpoint that is refused; it names the file and what makes it anew."""
    with pytest.raises(UserError) as caught:
        checkpoints.load(path, network)
    message = str(caught.value)
    assert path.name in message and f"`twf pretrain train {path.stem}" in message
    return message


@pytest.mark.parametrize(("architecture", "width"), [("resnet18", 8), ("resnet50", 4)])
def test_another_network_is_refused_with_both_named(path, architecture, width):
    asked = Network(architecture=architecture, width=width)
    message = refusal(path, asked)
    assert str(SMALL.model_dump()) in message and str(asked.model_dump()) in message


def test_the_same_network_gives_the_same_bytes_with_the_permissions_of_any_file(path, tmp_path):
    """Or DVC would see a change where there is none. The library's own order differs each time."""
    again = tmp_path / "again.safetensors"
    for _ in range(20):
        checkpoints.save(again, network(), ABOUT)
        assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == [again, path.parent]
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


def test_a_full_disk_is_a_users_mistake(small_disk):
    with pytest.raises(UserError, match="No space left on device"):
        checkpoints.save(small_disk / "mine.safetensors", network(width=16), ABOUT)
    assert list(small_disk.iterdir()) == []
