"""Pretraining on a miniature source, and taking weights from elsewhere."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support import CPU, pretrain, spy

import twf
from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints, pretraining, provenance
from twf.jobs.checkpoints import Checkpoint, read_network
from twf.learning.models.resnet import ResNet
from twf.learning.pretraining import Supervised
from twf.study import reading
from twf.study.params import Network
from twf.study.products import Products

WIDE = Network(architecture="resnet50", width=4)
NETWORK = Network(architecture="resnet18", width=4)  # the miniature's
LONG = {"epochs": 10, "lr": 0.1}
CHECKPOINT = files.checkpoint_file("origin")
TRAINED: list[bytes] = []  # the checkpoint of `trained`, once it is made

Values = dict[str, Any]


def train_source(values: Values, **recipe: Any) -> Checkpoint:
    """Pretrain the miniature's source by a changed recipe."""
    values["sources"]["origin"]["pretraining"] |= recipe
    pretrain(reading.check(values), "origin", CPU)
    return checkpoints.load(CHECKPOINT, NETWORK)


@pytest.fixture
def trained(tiny_inputs, tiny_values) -> Checkpoint:
    """A checkpoint of ten epochs, in its place; it is trained once for all tests."""
    if TRAINED:
        tiny_values["sources"]["origin"]["pretraining"] |= LONG
        CHECKPOINT.write_bytes(TRAINED[0])
    else:
        train_source(tiny_values, **LONG)
        TRAINED.append(CHECKPOINT.read_bytes())
    return checkpoints.load(CHECKPOINT, NETWORK)


def test_pretraining_learns_and_records_how_well(tiny_inputs, tiny_values, capsys, monkeypatch):
    monkeypatch.setattr("twf.progress.LINE_EVERY", 0.0)  # a line an epoch
    about = train_source(tiny_values, **LONG).about
    printed = capsys.readouterr()
    first, *lines = printed.err.splitlines()
    assert first == "pretrain origin: begins: 10 epochs of 4 steps"
    losses = [float(line.rsplit(" ", 1)[1]) for line in lines if " loss " in line]
    assert len(losses) == 10
    assert losses[-1] < 0.5 * losses[0]
    assert f": {about['test_accuracy']:.2f} % of the test images of origin right\n" in printed.out
    assert about["network"] == {"architecture": "resnet18", "width": 4}
    assert about["data"] == "origin"
    assert about["pretraining"].items() >= LONG.items()
    dataset = store.load(files.data_file("origin"))
    assert about["data_fingerprint"] == dataset.train_fingerprint
    assert about["seconds"] > 0 and about["device"] and about["versions"]["torch"]
    assert about["code"]["version"] == twf.__version__ and about["code"]["method_hash"]
    # the accuracy is that of evaluation mode, on the source's test images
    images = (dataset.test_images.permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    network, _ = read_network(CHECKPOINT, NETWORK, 3)
    with torch.no_grad():
        right = network.eval()(images).argmax(1) == dataset.test_labels
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


def test_published_weights_become_a_checkpoint(tiny_project, tiny_values, capsys):
    source = {"network": WIDE.model_dump(), "weights": "published.pth"}
    tiny_values["sources"]["origin"] = source
    plan = Products(reading.check(tiny_values)).network("origin").plan  # without the file's hash
    with pytest.raises(UserError, match="published.pth"):
        pretraining.pretrain("origin", plan, CPU)
    expected = ResNet(WIDE, classes=5).state_dict()
    official = plan | {"weights": "archives/resnet50-imagenet/resnet50-0676ba61.pth"}
    with pytest.raises(UserError, match="twf data fetch resnet50-imagenet"):
        pretraining.pretrain("origin", official, CPU)
    torch.save(expected, "published.pth")
    pretraining.pretrain("origin", plan, CPU)
    loaded = checkpoints.load(CHECKPOINT, WIDE)
    assert len(loaded.tensors["classifier.weight"]) == 5
    assert loaded.about["weights"] == "published.pth"
    sha = files.sha256(Path("published.pth"))
    assert loaded.about["weights_sha256"] == loaded.about["plan"]["weights_sha256"] == sha
    assert loaded.about["data"] is None and loaded.about["test_accuracy"] is None
    assert all(torch.equal(t, expected[name]) for name, t in loaded.tensors.items())
    assert "sources.origin" in capsys.readouterr().out


@pytest.fixture
def take(trained, tiny_values) -> Callable[[str], Checkpoint]:
    """`take(file)`: make the checkpoint of the weights in a file, which the source names."""

    def of_file(file: str) -> Checkpoint:
        tiny_values["sources"]["origin"]["weights"] = file
        pretrain(reading.check(tiny_values), "origin", CPU)
        return checkpoints.load(CHECKPOINT, NETWORK)

    return of_file


def test_weights_are_as_good_as_where_they_were_trained(take, trained, capsys):
    """An accuracy that cannot be measured is null."""
    torch.save(trained.tensors, "mine.pth")
    expected = trained.about["test_accuracy"]
    for accuracy, message in ((expected, f"{expected:.2f} %"), (None, "not measured")):
        about, printed = take("mine.pth").about, capsys.readouterr().out
        assert str(CHECKPOINT) in printed and message in printed
        assert about["data"] == "origin" and about["test_accuracy"] == accuracy
        files.data_file("origin").unlink(missing_ok=True)


def test_weights_of_two_networks_in_one_file_are_refused(take, trained):
    teacher = {f"model.{name}": tensor + 1 for name, tensor in trained.tensors.items()}
    torch.save(trained.tensors | teacher, "mine.pth")
    with pytest.raises(UserError, match=r"mine.pth has several tensors .* model\..* one network"):
        take("mine.pth")


def test_a_shared_checkpoint_gives_the_same_with_and_without_data(take, tiny_values):
    """In half precision, as networks in git are; trained as the source says; and undamaged."""
    shared = Path("shared.safetensors")
    network, about = read_network(CHECKPOINT, NETWORK, 3)
    checkpoints.save(shared, network.half(), about)
    loaded, taken = take(str(shared)), CHECKPOINT.read_bytes()
    assert {t.dtype for t in loaded.tensors.values()} == {torch.float32, torch.int64}
    assert loaded.about["weights"] == str(shared)
    assert loaded.about["pretraining"]["epochs"] == 10
    files.data_file("origin").rename("elsewhere")
    take(str(shared))
    assert CHECKPOINT.read_bytes() == taken
    recipe = tiny_values["sources"]["origin"]["pretraining"]
    recipe["epochs"] = 11
    with pytest.raises(UserError, match=r"shared.safetensors .*otherwise.*epochs: 10 -> 11"):
        take(str(shared))
    for key in ("data", "pretraining"):  # a source may say nothing of how it was trained
        del tiny_values["sources"]["origin"][key]
    assert take(str(shared)).about["pretraining"]["epochs"] == 10
    taken = CHECKPOINT.read_bytes()
    content = bytearray(shared.read_bytes())
    content[-100] ^= 1
    shared.write_bytes(content)
    with pytest.raises(UserError, match="shared.safetensors"):
        take(str(shared))
    assert CHECKPOINT.read_bytes() == taken
