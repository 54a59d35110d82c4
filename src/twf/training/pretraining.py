"""Training a network on a source, or taking weights from elsewhere: the start of every run."""

from __future__ import annotations

import hashlib
import math
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from twf import files
from twf.data import store
from twf.data.augmentation import Augment
from twf.errors import UserError
from twf.evaluation.accuracy import accuracy, to_device
from twf.models.resnet import ResNet
from twf.params import Params, Pretraining, Source
from twf.progress import progress
from twf.training import checkpoints
from twf.training.provenance import environment
from twf.training.randomness import Generators, seeded
from twf.training.sgd import cosine
from twf.training.weights import read_network


def pretrain(params: Params, name: str, device: torch.device) -> None:
    """Make the checkpoint of the source `name`: train it, or take the weights that it names."""
    source = _named(params, name)
    if source.weights is not None:
        import_weights(params, name, Path(source.weights), device)
    else:
        _train(params, name, source, device)


def import_weights(params: Params, name: str, file: Path, device: torch.device) -> None:
    """Make the checkpoint of the source `name` of weights that were trained elsewhere.

    Its accuracy on the source's test images is measured where their data are prepared, and said.
    Raises `UserError` where the weights do not fit the source's network or its classes.
    """
    source = _named(params, name)
    output = files.checkpoint_file(name)
    classes = None if source.data is None else params.datasets[source.data].classes
    network = read_network(file, source.network, classes).to(device)
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    about: dict[str, Any] = {
        "network": source.network.model_dump(),
        "weights": str(file),
        "weights_sha256": sha256,
        "data": source.data,
        "test_accuracy": None,
    }
    if source.data is None:
        said = f"accuracy not measured: sources.{name} names no data"
    elif not (data := files.data_file(source.data)).exists():
        said = f"accuracy not measured: no {data}; `twf data prepare {source.data}` makes it"
    else:
        dataset = store.load(data)
        about["data_fingerprint"] = dataset.train_fingerprint
        right = _test_accuracy(params, source.data, network, dataset, device)
        about["test_accuracy"] = right
        said = f"{right:.2f} % of the test images of {source.data} right"
        if right < 1.5 * 100 / len(dataset.classes):
            said += ", hardly more than by chance: its classes may stand in another order"
    checkpoints.save(output, network, about)
    print(f"{output}: {said}")


def _named(params: Params, name: str) -> Source:
    if name not in params.sources:
        raise UserError(f"no source {name!r} in params.yaml; there is {', '.join(params.sources)}")
    return params.sources[name]


def _train(params: Params, name: str, source: Source, device: torch.device) -> None:
    """Cross-entropy on the source's training images, by the source's recipe."""
    assert source.data is not None and source.pretraining is not None  # `Source` holds this
    recipe = source.pretraining
    dataset = store.load(files.data_file(source.data))
    augment = Augment(params.datasets[source.data].augmentation, device)
    generators = Generators(recipe.seed, device)
    with seeded(recipe.seed, "network"):
        network = ResNet(source.network, len(dataset.classes)).to(device)
    images, labels = to_device(dataset.train_images, device), dataset.train_labels.to(device)
    optimizer = torch.optim.SGD(
        network.parameters(),
        lr=recipe.lr,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
    )
    start = time.monotonic()
    steps = len(images) // recipe.batch_size  # the last incomplete batch is dropped
    if steps == 0:
        raise UserError(
            f"{len(images)} training images of {source.data} do not fill a batch of "
            f"{recipe.batch_size}; lower sources.{name}.pretraining.batch_size"
        )
    with progress(f"pretrain {name}", recipe.epochs) as advance:
        for epoch in range(recipe.epochs):
            network.train()
            order = torch.randperm(len(images), generator=generators["order"], device=device)
            total = torch.zeros((), device=device)
            for step, index in enumerate(order.split(recipe.batch_size)[:steps]):
                for group in optimizer.param_groups:
                    group["lr"] = _rate(recipe, epoch + step / steps)
                inputs = augment(images[index], generators["augmentation"])
                loss = F.cross_entropy(network(inputs), labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            mean = total.item() / steps
            if not math.isfinite(mean):
                raise UserError(
                    f"pretraining on {name} diverged in epoch {epoch}; lower sources.{name}."
                    "pretraining.lr"
                )
            advance(1, f"loss {mean:.3f}")
    about = {
        "network": source.network.model_dump(),
        "data": source.data,
        "data_fingerprint": dataset.train_fingerprint,
        "pretraining": recipe.model_dump(),
        "test_accuracy": _test_accuracy(params, source.data, network, dataset, device),
        "seconds": time.monotonic() - start,
        **environment(device),
    }
    checkpoints.save(files.checkpoint_file(name), network, about)


def _test_accuracy(
    params: Params, data: str, network: ResNet, dataset: store.Dataset, device: torch.device
) -> float:
    """Per cent of the test images of `data` that the network, put into evaluation mode, knows."""
    network.eval()
    augment = Augment(params.datasets[data].augmentation, device)
    images, labels = to_device(dataset.test_images, device), dataset.test_labels.to(device)
    return accuracy(network, augment, images, labels)


def _rate(recipe: Pretraining, epoch: float) -> float:
    """The learning rate at a point in time, in epochs from the start."""
    if recipe.schedule == "constant":
        return recipe.lr
    return cosine(epoch, recipe.epochs, recipe.lr, 0.0)
