"""Checkpoints as files: what is saved is loaded, and only by the network it is of."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from twf.errors import UserError
from twf.jobs import checkpoints
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import seeded
from twf.study.params import Network

SMALL = Network(architecture="resnet18", width=4)


def network(seed: int = 0, shape: Network = SMALL, classes: int = 3) -> ResNet:
    with seeded(seed, "test"):
        return ResNet(shape, classes)


def about(shape: Network = SMALL) -> dict:
    return {"network": shape.model_dump(), "data": "letters", "test_accuracy": 98.5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A checkpoint of `network()`."""
    path = tmp_path / "checkpoints" / "mine.safetensors"
    checkpoints.save(path, network(), about())
    return path


def test_what_is_saved_is_loaded(path):
    loaded = checkpoints.load(path, SMALL)
    assert loaded.about == about()
    assert loaded.classes == 3
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    other = network(seed=1)
    loaded.into(other)
    expected = network().state_dict()
    assert other.state_dict().keys() == expected.keys()
    assert all(torch.equal(t, expected[name]) for name, t in other.state_dict().items())


@pytest.mark.parametrize(
    "asked",
    [
        Network(architecture="resnet18", width=8),
        Network(architecture="resnet50", width=4),
    ],
)
def test_another_network_is_refused_with_both_named(path, asked):
    with pytest.raises(UserError) as caught:
        checkpoints.load(path, asked)
    message = str(caught.value)
    assert "mine.safetensors" in message and "`twf pretrain train mine`" in message
    assert str(SMALL.model_dump()) in message and str(asked.model_dump()) in message


def test_a_checkpoint_has_the_permissions_of_any_new_file(path):
    (path.parent / "new").touch()
    assert path.stat().st_mode == (path.parent / "new").stat().st_mode
    assert path.stat().st_mode & 0o400


def test_the_same_network_gives_the_same_bytes_in_any_process(path, tmp_path):
    """Or DVC would see a change where there is none."""
    code = (
        "import sys; from pathlib import Path; from twf.jobs import checkpoints\n"
        "from twf.learning.models.resnet import ResNet; from twf.study.params import Network\n"
        f"loaded = checkpoints.load(Path({str(path)!r}), n := Network({SMALL!r}))\n"
        "network = ResNet(n, loaded.classes); loaded.into(network)\n"
        "checkpoints.save(Path(sys.argv[1]), network, loaded.about)\n"
    ).replace(f"Network({SMALL!r})", f"Network(**{SMALL.model_dump()!r})")
    again = tmp_path / "again.safetensors"
    subprocess.run([sys.executable, "-c", code, str(again)], check=True)
    assert again.read_bytes() == path.read_bytes()
    checkpoints.save(again, network(), about())
    assert again.read_bytes() == path.read_bytes()
    assert sorted(tmp_path.iterdir()) == [again, path.parent]


def test_any_safetensors_reader_can_read_it(path):
    tensors = load_file(path)
    assert all(torch.equal(t, tensors[name]) for name, t in network().state_dict().items())


def test_a_missing_or_torn_file_is_named_with_the_remedy(path):
    missing = path.with_name("other.safetensors")
    with pytest.raises(UserError, match=r"no .*other.safetensors; .*`twf pretrain train other`"):
        checkpoints.load(missing, SMALL)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"mine.safetensors cannot be read .*delete it"):
        checkpoints.load(path, SMALL)


def test_a_damaged_checkpoint_is_refused_wherever_it_is_damaged(path):
    whole = path.read_bytes()
    for at in range(8, len(whole), len(whole) // 20):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(UserError, match=r"mine\.safetensors .*delete it.*`twf"):
            checkpoints.load(path, SMALL)


def test_a_full_disk_is_a_users_mistake(small_disk):
    large = network(shape=Network(architecture="resnet18", width=16))
    with pytest.raises(UserError, match="No space left on device.: free some space there"):
        checkpoints.save(small_disk / "mine.safetensors", large, about())
    assert list(small_disk.iterdir()) == []
