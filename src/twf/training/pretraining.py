"""Training a network on a source, or taking weights from elsewhere: the start of every run."""

from __future__ import annotations

import copy
import hashlib
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twf import files
from twf.data import store
from twf.data.augmentation import Augment
from twf.errors import UserError
from twf.evaluation.accuracy import accuracy, to_device
from twf.methods.base import Batch, Learner, Method, Step
from twf.models.resnet import ResNet
from twf.params import Params, Pretraining, Source
from twf.progress import progress
from twf.training import checkpoints
from twf.training.precision import set_precision
from twf.training.provenance import code, environment
from twf.training.randomness import Generators, seeded
from twf.training.resume import Keeper, keeping
from twf.training.sgd import batches, cosine, sgd_step
from twf.training.state import capture, fill, restore
from twf.training.step import Plain, executed
from twf.training.weights import read_network


def pretrain(
    params: Params,
    name: str,
    device: torch.device,
    save_every: float = math.inf,
    execution: str = "plain",
) -> None:
    """Make the checkpoint of the source `name`: train it, or take the weights that it names.

    Training goes on from its state, saved every `save_every` seconds. Raises `UserError` and
    `Stopped` as `twf.training.run.execute` does.
    """
    source = _named(params, name)
    if source.weights is not None:
        import_weights(params, name, Path(source.weights), device)
    else:
        _train(params, name, source, device, save_every, execution)


def import_weights(params: Params, name: str, file: Path, device: torch.device) -> None:
    """Make the checkpoint of the source `name` of weights that were trained elsewhere.

    Its accuracy on the source's test images is measured where their data are prepared, and said.
    A checkpoint of ours, as `export_weights` writes them, keeps what it says of itself: so the
    same file gives the same checkpoint everywhere. Raises `UserError` where the weights do not fit
    the source's network or its classes.
    """
    source = _named(params, name)
    output = files.checkpoint_file(name)
    classes = None if source.data is None else params.datasets[source.data].classes
    network = read_network(file, source.network, classes).to(device)
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    about: dict[str, Any] = {
        "network": source.network.model_dump(),
        "data": source.data,
        "test_accuracy": None,
        "code": code(),
    }
    own = checkpoints.about(file)
    about = (own or about) | {"weights": file.name, "weights_sha256": sha256}
    if source.data is None:
        said = f"accuracy not measured: sources.{name} names no data"
    elif not (data := files.data_file(source.data)).exists():
        said = f"accuracy not measured: no {data}; `twf data prepare {source.data}` makes it"
    else:
        dataset = store.load(data)
        right = _test_accuracy(params, source.data, network, dataset, device)
        said = f"{right:.2f} % of the test images of {source.data} right"
        if own is None:
            about |= {"data_fingerprint": dataset.train_fingerprint, "test_accuracy": right}
        elif own["test_accuracy"] is not None:
            said += f"; {own['test_accuracy']:.2f} % where it was exported"
        if right < 1.5 * 100 / len(dataset.classes):
            said += ", hardly more than by chance: its classes may stand in another order"
    checkpoints.save(output, network, about)
    print(f"{output}: {said}")


def export_weights(params: Params, name: str, file: Path, device: torch.device) -> None:
    """Write the checkpoint of the source `name` in half precision, to be shared and imported.

    A safetensors file of half the size, with what the checkpoint says of itself; the accuracy in it
    is that of the rounded weights. Raises `UserError` where the source's data are not prepared, or
    a weight is beyond the range of half precision.
    """
    source = _named(params, name)
    if file.suffix != ".safetensors":
        raise UserError(f"{file} would be a safetensors file; let its name end so")
    if file.resolve() == files.checkpoint_file(name).resolve():
        raise UserError(f"{file} is the checkpoint itself, and would be lost; name another file")
    checkpoint = checkpoints.load(files.checkpoint_file(name), source.network)
    network = ResNet(source.network, checkpoint.classes)
    checkpoint.into(network)
    network.half()
    beyond = [name for name, t in network.state_dict().items() if not t.isfinite().all()]
    if beyond:
        raise UserError(
            f"{files.checkpoint_file(name)}: {beyond[0]} is not finite in half precision; share "
            "the checkpoint as it is"
        )
    about = checkpoint.about | {"exported_from": checkpoint.sha256, "test_accuracy": None}
    if source.data is not None:
        dataset = store.load(files.data_file(source.data))
        rounded = copy.deepcopy(network).float().to(device)
        about["test_accuracy"] = _test_accuracy(params, source.data, rounded, dataset, device)
    checkpoints.save(file, network, about)
    size = file.stat().st_size / 2**20
    accuracy_said = "" if source.data is None else f", {about['test_accuracy']:.2f} % right"
    print(f"{file}: {size:.1f} MiB{accuracy_said}")


def _named(params: Params, name: str) -> Source:
    if name not in params.sources:
        raise UserError(f"no source {name!r} in params.yaml; there is {', '.join(params.sources)}")
    return params.sources[name]


class Supervised(Method[Pretraining]):
    """Cross-entropy on a source's images, by SGD with momentum: one task of all classes."""

    def setup(self) -> None:
        self.velocity = [torch.zeros_like(p) for p in self.learner.network.parameters()]

    def learning_rate(self, epoch: float) -> float:
        recipe = self.hyperparameters
        if recipe.schedule == "constant":
            return recipe.lr
        return cosine(epoch, recipe.epochs, recipe.lr, 0.0)

    def loss(self, batch: Batch) -> Step:
        learner = self.learner
        inputs = learner.augment(batch.images, learner.generators["augmentation"])
        return Step({"cross-entropy": F.cross_entropy(learner.network(inputs), batch.labels)})

    def update(self, parameters: list[nn.Parameter], rate: float | Tensor) -> None:
        recipe = self.hyperparameters
        sgd_step(parameters, rate, self.velocity, recipe.momentum, recipe.weight_decay)


def supervised(params: Params, source: Source, device: torch.device) -> Supervised:
    """What trains the network of a source that is trained here, at its start."""
    assert source.data is not None and source.pretraining is not None  # `Source` holds this
    data, recipe = params.datasets[source.data], source.pretraining
    with seeded(recipe.seed, "network"):
        network = ResNet(source.network, data.classes)
    learner = Learner(
        network=network.to(device, memory_format=torch.channels_last),  # type: ignore[call-overload]
        augment=Augment(data.augmentation, device),
        generators=Generators(recipe.seed, device),
        device=device,
        classes=data.classes,
        tasks=1,
        batch_size=recipe.batch_size,
        epochs=recipe.epochs,
        buffer=None,
        image_size=data.size,
        fidelity={},
        precision=recipe.precision,
    )
    return Supervised(learner, recipe)


def _train(
    params: Params,
    name: str,
    source: Source,
    device: torch.device,
    save_every: float,
    execution: str,
) -> None:
    """Train on the source's images, by its recipe."""
    assert source.data is not None and source.pretraining is not None  # `Source` holds this
    recipe = source.pretraining
    dataset = store.load(files.data_file(source.data))
    if len(dataset.train_labels) < recipe.batch_size:
        raise UserError(
            f"{len(dataset.train_labels)} training images of {source.data} do not fill a batch of "
            f"{recipe.batch_size}; lower sources.{name}.pretraining.batch_size"
        )
    guard = {
        "source": source.model_dump(),
        "augmentation": params.datasets[source.data].augmentation.model_dump(),
        "data": dataset.train_fingerprint,
        "code": code()["method_hash"],
        "device": device.type,
        "execution": execution,
    } | environment(device)["versions"]
    set_precision(recipe.precision)
    method = supervised(params, source, device)
    network = method.learner.network
    with keeping(files.state_file("pretrain", name), guard, save_every) as keeper:
        _learn(name, executed(execution, method), dataset, keeper)
        about = {
            "network": source.network.model_dump(),
            "data": source.data,
            "data_fingerprint": dataset.train_fingerprint,
            "pretraining": recipe.model_dump(),
            "execution": execution,
            "test_accuracy": _test_accuracy(params, source.data, network, dataset, device),
            "seconds": keeper.seconds,
            "code": code(),
            **environment(device),
        }
        checkpoints.save(files.checkpoint_file(name), network, about)
        keeper.forget()


def _learn(name: str, steps: Plain, dataset: store.Dataset, keeper: Keeper) -> None:
    """Train the network, from where `keeper` has saved it."""
    method = steps.method
    learner = method.learner
    images = to_device(dataset.train_images, learner.device)
    labels = dataset.train_labels.to(learner.device)
    place: dict[str, Any] = {"epoch": 0, "step": 0, "order": None, "total": None}

    def state() -> dict[str, Any]:
        return {"run": capture(method), "place": place}

    if (saved := keeper.load()) is not None:
        values, tensors = saved
        restore(method, values["run"], tensors)
        place = fill(None, values["place"], tensors, learner.device)
    steps.begin(images, labels)
    with progress(f"pretrain {name}", learner.epochs) as advance:
        if place["epoch"]:
            advance(place["epoch"], "resumed")
        while place["epoch"] < learner.epochs:
            learner.network.train()
            if place["order"] is None:
                place["order"] = learner.generators["order"].permutation(len(images))
                place["total"] = torch.zeros((), device=learner.device)
            positions = batches(place["order"], method.batch_size)
            while place["step"] < len(positions):
                rate = method.learning_rate(place["epoch"] + place["step"] / len(positions))
                terms = steps.step(positions[place["step"]], rate)
                place["total"] += terms["cross-entropy"]
                place["step"] += 1
                keeper.pause(state)
            mean = place["total"].item() / len(positions)
            if not math.isfinite(mean):
                raise UserError(
                    f"pretraining on {name} diverged in epoch {place['epoch']}; lower sources."
                    f"{name}.pretraining.lr"
                )
            place = {"epoch": place["epoch"] + 1, "step": 0, "order": None, "total": None}
            advance(1, f"loss {mean:.3f}")


def _test_accuracy(
    params: Params, data: str, network: ResNet, dataset: store.Dataset, device: torch.device
) -> float:
    """Per cent of the test images of `data` that the network, put into evaluation mode, knows."""
    network.eval()
    augment = Augment(params.datasets[data].augmentation, device)
    images, labels = to_device(dataset.test_images, device), dataset.test_labels.to(device)
    return accuracy(network, augment, images, labels)
