"""Pretraining on a miniature source, and taking weights from elsewhere."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from made import import_weights, pretrain
from spying import spy

import twf
from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints, provenance
from twf.jobs.checkpoints import Checkpoint
from twf.learning.models.resnet import ResNet
from twf.learning.pretraining import Supervised
from twf.study import params, reading
from twf.study.params import Network

CPU = torch.device("cpu")
WIDE = Network(architecture="resnet50", width=4)
NETWORK = Network(architecture="resnet18", width=4)  # the miniature's
LONG = {"epochs": 10, "lr": 0.1}
CHECKPOINT = files.checkpoint_file("origin")

Values = dict[str, Any]


def train_source(values: Values, **recipe: Any) -> Checkpoint:
    """Pretrain the miniature's source by a changed recipe."""
    values["sources"]["origin"]["pretraining"] |= recipe
    pretrain(reading.check(values), "origin", CPU)
    return checkpoints.load(CHECKPOINT, NETWORK)


@pytest.fixture(scope="session")
def _trained() -> dict[str, bytes]:
    return {}


@pytest.fixture
def trained(tiny_inputs, tiny_values, _trained) -> Checkpoint:
    """A checkpoint of ten epochs, in its place; it is trained once for all tests."""
    if _trained:
        tiny_values["sources"]["origin"]["pretraining"] |= LONG
        CHECKPOINT.write_bytes(_trained["bytes"])
    else:
        train_source(tiny_values, **LONG)
        _trained["bytes"] = CHECKPOINT.read_bytes()
    return checkpoints.load(CHECKPOINT, NETWORK)


def test_pretraining_learns_and_records_how_well(tiny_inputs, tiny_values, capsys, monkeypatch):
    monkeypatch.setattr("twf.progress.LINE_EVERY", 0.0)  # a line an epoch
    checkpoint = train_source(tiny_values, **LONG)
    said = capsys.readouterr()
    first, *lines = said.err.splitlines()
    assert first == "pretrain origin: begins: 10 epochs of 4 steps"
    losses = [float(line.rsplit(" ", 1)[1]) for line in lines if " loss " in line]
    assert len(losses) == 10
    assert losses[-1] < 0.5 * losses[0]
    about = checkpoint.about
    assert f": {about['test_accuracy']:.2f} % of the test images of origin right\n" in said.out
    assert about["network"] == {"architecture": "resnet18", "width": 4}
    assert about["data"] == "origin"
    assert about["pretraining"].items() >= LONG.items()
    dataset = store.load(files.data_file("origin"))
    assert about["data_fingerprint"] == dataset.train_fingerprint
    assert about["seconds"] > 0 and about["device"] and about["versions"]["torch"]
    assert about["code"]["version"] == twf.__version__ and about["code"]["method_hash"]
    # the accuracy is that of evaluation mode, on the source's test images
    images = (dataset.test_images.permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    with torch.no_grad():
        right = checkpoint.network().eval()(images).argmax(1) == dataset.test_labels
    assert about["test_accuracy"] == pytest.approx(100 * right.float().mean().item())
    assert about["test_accuracy"] > 80  # of 3 classes: 33 by chance


def test_a_checkpoint_names_the_code_that_its_training_began_with(
    tiny_inputs, tiny_values, monkeypatch
):
    """A commit may come meanwhile."""
    commits = iter("abcdefgh")
    origin = {"version": "0.1.0", "method_hash": "00"}
    monkeypatch.setattr(provenance, "code_origin", lambda *_: origin | {"commit": next(commits)})
    assert train_source(tiny_values).about["code"]["commit"] == "a"


def test_the_recipe_decides_the_network(tiny_inputs, tiny_values):
    first = checkpoints.load(CHECKPOINT, NETWORK).tensors  # as it was made for all tests
    torch.manual_seed(12345)
    again = train_source(tiny_values).tensors
    assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
    start, base, momentum, decay = (
        train_source(tiny_values, **recipe).tensors["conv1.weight"]
        for recipe in (
            {"seed": 1},
            {"seed": 0, "momentum": 0.0, "weight_decay": 0.0},
            {"momentum": 0.9},
            {"momentum": 0.0, "weight_decay": 0.1},
        )
    )
    assert not torch.equal(start, first["conv1.weight"])
    assert not torch.equal(momentum, base)
    assert decay.norm() < base.norm()


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_rate_follows_the_schedule_in_every_step(
    tiny_inputs, tiny_values, monkeypatch, schedule
):
    """33 images in batches of 8: 4 steps an epoch, the last image left out."""
    rates = []
    spy(monkeypatch, Supervised, "learning_rate", lambda rate, *_: rates.append(rate))
    train_source(tiny_values, epochs=2, lr=0.04, schedule=schedule)
    falling = [0.02 * (1 + math.cos(math.pi * step / 8)) for step in range(8)]
    assert rates == pytest.approx(falling if schedule == "cosine" else [0.04] * 8)


def with_weights(values: Values, file: str) -> params.Params:
    """The miniature, whose source takes the weights in `file`."""
    values["sources"]["origin"] = {"network": WIDE.model_dump(), "weights": file}
    return reading.check(values)


def test_published_weights_become_a_checkpoint(tiny_project, tiny_values, capsys):
    file = "published.pth"
    network = ResNet(WIDE, classes=5)
    checked = with_weights(tiny_values, file)
    with pytest.raises(UserError, match=file):
        pretrain(checked, "origin", CPU)
    torch.save(network.state_dict(), file)
    pretrain(checked, "origin", CPU)
    loaded = checkpoints.load(CHECKPOINT, WIDE)
    assert loaded.network().classifier.out_features == 5
    assert loaded.about["weights"] == file
    assert loaded.about["weights_sha256"] == hashlib.sha256(Path(file).read_bytes()).hexdigest()
    assert loaded.about["data"] is None and loaded.about["test_accuracy"] is None
    expected = network.state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in loaded.tensors.items())
    assert "sources.origin" in capsys.readouterr().out


# Weights for a source that would else be trained here


def test_weights_that_do_not_fit_leave_the_checkpoint_as_it_was(tiny_inputs, tiny_values):
    before = CHECKPOINT.read_bytes()
    torch.save(ResNet(NETWORK, classes=5).state_dict(), "mine.pth")
    with pytest.raises(UserError, match="classifier.weight.*5, 32"):
        import_weights(reading.check(tiny_values), "origin", Path("mine.pth"), CPU)
    assert CHECKPOINT.read_bytes() == before


def test_imported_weights_are_as_good_as_where_they_were_trained(trained, tiny_values, capsys):
    """An accuracy that cannot be measured is null."""
    checked, network = reading.check(tiny_values), trained.network()
    torch.save(network.state_dict(), "mine.pth")
    for measured in (True, False):
        CHECKPOINT.unlink()
        import_weights(checked, "origin", Path("mine.pth"), CPU)
        about, printed = checkpoints.load(CHECKPOINT, NETWORK).about, capsys.readouterr().out
        assert str(CHECKPOINT) in printed and about["data"] == "origin"
        if measured:
            assert about["test_accuracy"] == trained.about["test_accuracy"] > 80
            assert about["data_fingerprint"] == trained.about["data_fingerprint"]
            assert f"{about['test_accuracy']:.2f} %" in printed
        else:
            assert about["test_accuracy"] is None and "not measured" in printed
        files.data_file("origin").unlink(missing_ok=True)


# Checkpoints of ours from elsewhere


@pytest.fixture
def shared(trained) -> Path:
    """The trained checkpoint in half precision, as networks in git are."""
    file = Path("shared.safetensors")
    checkpoints.save(file, trained.network().half(), trained.about)
    return file


def test_a_shared_checkpoint_gives_the_same_with_and_without_data(shared, tiny_values):
    checked = reading.check(tiny_values)
    import_weights(checked, "origin", shared, CPU)
    there = CHECKPOINT.read_bytes()
    loaded = checkpoints.load(CHECKPOINT, NETWORK)
    assert {t.dtype for t in loaded.tensors.values()} == {torch.float32, torch.int64}
    assert loaded.about["weights"] == str(shared)
    assert loaded.about["pretraining"]["epochs"] == 10
    CHECKPOINT.unlink()
    files.data_file("origin").unlink()
    import_weights(checked, "origin", shared.absolute(), CPU)  # wherever it lies
    assert CHECKPOINT.read_bytes() == there

    CHECKPOINT.unlink()
    tiny_values["sources"]["origin"]["weights"] = str(shared)  # beside the training that gave them
    pretrain(reading.check(tiny_values), "origin", CPU, 0.0, "plain")
    named = checkpoints.load(CHECKPOINT, NETWORK)
    assert all(torch.equal(t, loaded.tensors[name]) for name, t in named.tensors.items())
    there = CHECKPOINT.read_bytes()

    content = bytearray(shared.read_bytes())
    content[-100] ^= 1
    shared.write_bytes(content)
    with pytest.raises(UserError, match="shared.safetensors"):
        import_weights(checked, "origin", shared, CPU)
    assert CHECKPOINT.read_bytes() == there


def test_weights_that_a_source_names_were_trained_as_it_says(shared, tiny_values):
    """Its plan says how they were trained."""
    tiny_values["sources"]["origin"]["weights"] = str(shared)
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 11
    before = CHECKPOINT.read_bytes()
    with pytest.raises(UserError, match=r"shared.safetensors .*otherwise.*epochs: 10 -> 11"):
        pretrain(reading.check(tiny_values), "origin", CPU)
    assert CHECKPOINT.read_bytes() == before
