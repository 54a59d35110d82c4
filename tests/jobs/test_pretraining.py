"""Pretraining on a miniature source, and taking weights from elsewhere."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import twf
from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints, pretraining
from twf.jobs.checkpoints import Checkpoint
from twf.jobs.pretraining import export_weights, import_weights, pretrain
from twf.learning.models.resnet import ResNet
from twf.learning.pretraining import Supervised, supervised
from twf.study import params, reading
from twf.study.params import Network

CPU = torch.device("cpu")
WIDE = Network(architecture="resnet50", width=4)
NETWORK = Network(architecture="resnet18", width=4)  # the miniature's


def train_source(values: dict[str, Any], **recipe: Any) -> Checkpoint:
    """Pretrain the miniature's source by a changed recipe."""
    values["sources"]["origin"]["pretraining"] |= recipe
    pretrain(reading.check(values), "origin", CPU)
    network = Network(**values["sources"]["origin"]["network"])
    return checkpoints.load(files.checkpoint_file("origin"), network)


def test_pretraining_learns_and_records_how_well(tiny_inputs, tiny_values, capsys, monkeypatch):
    monkeypatch.setattr("twf.progress.LINE_EVERY", 0.0)  # a line an epoch
    checkpoint = train_source(tiny_values, epochs=10, lr=0.1)
    losses = [float(line.rsplit(" ", 1)[1]) for line in capsys.readouterr().err.splitlines()]
    assert len(losses) == 10
    assert losses[-1] < 0.5 * losses[0]
    about = checkpoint.about
    assert about["test_accuracy"] > 80  # of 3 classes: 33 by chance
    assert about["network"] == {"architecture": "resnet18", "width": 4}
    assert about["data"] == "origin"
    assert about["pretraining"]["epochs"] == 10 and about["pretraining"]["lr"] == 0.1
    dataset = store.load(files.data_file("origin"))
    assert about["data_fingerprint"] == dataset.train_fingerprint
    assert about["seconds"] > 0 and about["device"] and about["versions"]["torch"]
    assert about["code"]["version"] == twf.__version__ and about["code"]["method_hash"]


def test_the_recorded_accuracy_is_the_saved_networks(tiny_inputs, tiny_values):
    """In evaluation mode, on the source's test images."""
    checkpoint = train_source(tiny_values, epochs=2)
    dataset = store.load(files.data_file("origin"))
    network = ResNet(Network(architecture="resnet18", width=4), checkpoint.classes)
    checkpoint.into(network)
    network.eval()
    images = (dataset.test_images.permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    with torch.no_grad():
        right = network(images).argmax(1) == dataset.test_labels
    expected = 100 * right.float().mean().item()
    assert checkpoint.about["test_accuracy"] == pytest.approx(expected)


def test_the_same_recipe_gives_the_same_network_and_another_seed_another(tiny_inputs, tiny_values):
    first = train_source(tiny_values)
    torch.manual_seed(12345)
    second = train_source(tiny_values)
    third = train_source(tiny_values, seed=1)
    assert all(torch.equal(t, second.tensors[name]) for name, t in first.tensors.items())
    assert not torch.equal(first.tensors["conv1.weight"], third.tensors["conv1.weight"])


def test_momentum_and_weight_decay_take_part(tiny_inputs, tiny_values):
    found = [
        train_source(tiny_values, momentum=momentum, weight_decay=decay).tensors["conv1.weight"]
        for momentum, decay in ((0.0, 0.0), (0.9, 0.0), (0.0, 0.1))
    ]
    assert not torch.equal(found[0], found[1])
    assert found[2].norm() < found[0].norm()


@pytest.fixture
def rates(tiny_values) -> Callable[..., list[float]]:
    """`rates(**recipe)`: the learning rate at each quarter of ten epochs."""

    def one(**changes: Any) -> list[float]:
        recipe = {"epochs": 10, "batch_size": 8, "lr": 0.4, "schedule": "cosine"} | changes
        tiny_values["sources"]["origin"]["pretraining"] = recipe
        checked = reading.check(tiny_values)
        method = supervised(checked.sources["origin"], checked.datasets["origin"], CPU)
        return [method.learning_rate(epoch / 4) for epoch in range(40)]

    return one


def test_the_cosine_falls_from_the_full_rate_to_almost_nothing(rates):
    rates = rates()
    assert rates[0] == 0.4
    assert rates[20] == pytest.approx(0.2)  # half the way
    assert rates[10] == pytest.approx(0.2 + 0.2 * math.sqrt(0.5))
    assert all(a > b for a, b in pairwise(rates))
    assert 0 < rates[-1] < 0.01 * 0.4


def test_a_constant_rate_is_constant(rates):
    assert set(rates(schedule="constant")) == {0.4}


def test_the_rate_falls_in_every_step(tiny_inputs, tiny_values, monkeypatch):
    """33 images in batches of 8: 4 steps an epoch, the last image left out."""
    times = []
    rate = Supervised.learning_rate

    def spy(self: Supervised, epoch: float) -> float:
        times.append(epoch)
        return rate(self, epoch)

    monkeypatch.setattr(Supervised, "learning_rate", spy)
    train_source(tiny_values, epochs=2)
    assert times == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


def with_weights(values: dict[str, Any], file: str) -> params.Params:
    """The miniature, whose source takes the weights in `file`."""
    values["sources"]["origin"] = {"network": WIDE.model_dump(), "weights": file}
    return reading.check(values)


def torchvisions(network: ResNet) -> dict[str, torch.Tensor]:
    return {
        name.replace(".shortcut.", ".downsample.").replace("classifier.", "fc."): tensor
        for name, tensor in network.state_dict().items()
    }


@pytest.mark.parametrize("file", ["published.safetensors", "published.pth"])
def test_published_weights_become_a_checkpoint(tiny_project, tiny_values, capsys, file):
    network = ResNet(WIDE, classes=5)
    save = save_file if file.endswith(".safetensors") else torch.save
    save(torchvisions(network), file)
    pretrain(with_weights(tiny_values, file), "origin", CPU)
    loaded = checkpoints.load(files.checkpoint_file("origin"), WIDE)
    assert loaded.classes == 5
    assert loaded.about["weights"] == file
    assert loaded.about["weights_sha256"] == hashlib.sha256(Path(file).read_bytes()).hexdigest()
    assert loaded.about["data"] is None and loaded.about["test_accuracy"] is None
    expected = network.state_dict()
    assert all(torch.equal(t, expected[name]) for name, t in loaded.tensors.items())
    assert "accuracy not measured: sources.origin names no data" in capsys.readouterr().out


def test_weights_that_do_not_fit_leave_the_checkpoint_as_it_was(tiny_inputs, tiny_values):
    before = files.checkpoint_file("origin").read_bytes()
    torch.save({"fc.weight": torch.zeros(3, 8)}, "published.pth")
    with pytest.raises(UserError, match=r"published.pth does not fit"):
        pretrain(with_weights(tiny_values, "published.pth"), "origin", CPU)
    assert files.checkpoint_file("origin").read_bytes() == before


def test_missing_weights_are_named(tiny_project, tiny_values):
    for file in ("absent.safetensors", "absent.pth"):
        with pytest.raises(UserError, match=rf"no {file}; put the weights there"):
            pretrain(with_weights(tiny_values, file), "origin", CPU)


# Weights for a source that would else be trained here


def trained(values: dict[str, Any]) -> tuple[ResNet, float]:
    """A network trained on the miniature's source, and its accuracy."""
    checkpoint = train_source(values, epochs=10, lr=0.1)
    network = ResNet(Network(**checkpoint.about["network"]), checkpoint.classes)
    checkpoint.into(network)
    return network, checkpoint.about["test_accuracy"]


def test_imported_weights_are_as_good_as_where_they_were_trained(tiny_inputs, tiny_values, capsys):
    network, expected = trained(tiny_values)
    torch.save(torchvisions(network), "mine.pth")
    output = files.checkpoint_file("origin")
    output.unlink()
    import_weights(reading.check(tiny_values), "origin", Path("mine.pth"), CPU)
    loaded = checkpoints.load(output, Network(architecture="resnet18", width=4))
    assert loaded.about["test_accuracy"] == expected > 80
    assert loaded.about["data"] == "origin"
    assert (
        loaded.about["data_fingerprint"] == store.load(files.data_file("origin")).train_fingerprint
    )
    assert f"{output}: {expected:.2f} % of the test images" in capsys.readouterr().out


def test_an_accuracy_that_cannot_be_measured_is_null_and_said_to_be(
    tiny_inputs, tiny_values, capsys
):
    torch.save(ResNet(Network(architecture="resnet18", width=4), 3).state_dict(), "mine.pth")
    files.data_file("origin").unlink()
    import_weights(reading.check(tiny_values), "origin", Path("mine.pth"), CPU)
    loaded = checkpoints.load(
        files.checkpoint_file("origin"), Network(architecture="resnet18", width=4)
    )
    assert loaded.about["test_accuracy"] is None
    said = capsys.readouterr().out
    assert "accuracy not measured: no data/origin.safetensors; `twf data prepare origin`" in said


def test_classes_in_another_order_show_in_the_accuracy(tiny_inputs, tiny_values, capsys):
    network, _ = trained(tiny_values)
    with torch.no_grad():
        for parameter in network.classifier.parameters():
            parameter.copy_(parameter.roll(1, dims=0))
    torch.save(network.state_dict(), "mine.pth")
    import_weights(reading.check(tiny_values), "origin", Path("mine.pth"), CPU)
    assert "by chance: its classes may stand in another order" in capsys.readouterr().out


def test_weights_for_another_number_of_classes_are_refused(tiny_inputs, tiny_values):
    torch.save(ResNet(Network(architecture="resnet18", width=4), 5).state_dict(), "mine.pth")
    with pytest.raises(UserError, match=r"with 3 classes:\n.*classifier.weight \[5, 32\] instead"):
        import_weights(reading.check(tiny_values), "origin", Path("mine.pth"), CPU)


# Weights to be shared


SHARED = Path("shared.safetensors")


def test_exported_weights_are_half_the_size_and_say_what_they_are(tiny_inputs, tiny_values, capsys):
    network, _ = trained(tiny_values)
    output = files.checkpoint_file("origin")
    before = checkpoints.load(output, NETWORK)
    export_weights(reading.check(tiny_values), "origin", SHARED, CPU)
    assert SHARED.stat().st_size < 0.6 * output.stat().st_size
    tensors, _ = checkpoints.read_safetensors(SHARED, remedy="")
    assert tensors.keys() == before.tensors.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == (
            torch.float16 if before.tensors[name].is_floating_point() else torch.int64
        )
        torch.testing.assert_close(tensor, before.tensors[name].to(tensor.dtype), rtol=0, atol=0)
    about = checkpoints.about(SHARED)
    same = ("network", "data", "data_fingerprint", "pretraining", "code", "device", "seconds")
    assert {key: about[key] for key in same} == {key: before.about[key] for key in same}
    assert about["exported_from"] == before.sha256
    network.half().float()
    dataset = store.load(files.data_file("origin"))
    checked = reading.check(tiny_values)
    right = pretraining._test_accuracy(checked, "origin", network, dataset, CPU)
    assert about["test_accuracy"] == right
    assert f"{right:.2f} % right" in capsys.readouterr().out


def test_exported_weights_give_the_same_checkpoint_with_and_without_data(
    tiny_inputs, tiny_values, capsys
):
    trained(tiny_values)
    checked = reading.check(tiny_values)
    output = files.checkpoint_file("origin")
    export_weights(checked, "origin", SHARED, CPU)
    import_weights(checked, "origin", SHARED, CPU)
    assert "% where it was exported" in capsys.readouterr().out
    there = output.read_bytes()
    loaded = checkpoints.load(output, NETWORK)
    assert {t.dtype for t in loaded.tensors.values()} == {torch.float32, torch.int64}
    assert loaded.about["weights"] == str(SHARED)
    assert loaded.about["pretraining"]["epochs"] == 10
    output.unlink()
    files.data_file("origin").unlink()
    import_weights(checked, "origin", SHARED.absolute(), CPU)  # wherever it lies
    assert output.read_bytes() == there


def test_weights_beyond_half_precision_are_not_exported(tiny_inputs, tiny_values):
    network, _ = trained(tiny_values)
    output = files.checkpoint_file("origin")
    about = checkpoints.load(output, NETWORK).about
    with torch.no_grad():
        network.classifier.bias[0] = 1e5
    checkpoints.save(output, network, about)
    with pytest.raises(UserError, match=r"classifier\.bias is not finite in half precision"):
        export_weights(reading.check(tiny_values), "origin", SHARED, CPU)
    assert not SHARED.exists()


def test_exported_weights_that_are_damaged_are_not_imported(tiny_inputs, tiny_values):
    trained(tiny_values)
    checked = reading.check(tiny_values)
    export_weights(checked, "origin", SHARED, CPU)
    before = files.checkpoint_file("origin").read_bytes()
    content = bytearray(SHARED.read_bytes())
    content[-100] ^= 1
    SHARED.write_bytes(content)
    with pytest.raises(UserError, match=r"shared\.safetensors is damaged.*bring it again"):
        import_weights(checked, "origin", SHARED, CPU)
    assert files.checkpoint_file("origin").read_bytes() == before


def test_exported_weights_are_named_for_what_they_are(tiny_inputs, tiny_values):
    with pytest.raises(UserError, match=r"mine\.pth would be a safetensors file"):
        export_weights(reading.check(tiny_values), "origin", Path("mine.pth"), CPU)


def test_weights_are_not_exported_over_their_checkpoint(tiny_inputs, tiny_values):
    output = files.checkpoint_file("origin")
    before = output.read_bytes()
    with pytest.raises(UserError, match="is the checkpoint itself"):
        export_weights(reading.check(tiny_values), "origin", output.absolute(), CPU)
    assert output.read_bytes() == before
