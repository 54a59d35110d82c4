"""Training a network on a source, or taking published weights: the start of every run."""

from __future__ import annotations

import math
import time
from pathlib import Path

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


def pretrain(params: Params, name: str, device: torch.device) -> None:
    """Make the checkpoint of the source `name`."""
    if name not in params.sources:
        raise UserError(f"no source {name!r} in params.yaml; there is {', '.join(params.sources)}")
    source = params.sources[name]
    if source.weights is not None:
        _take(source, Path(source.weights), files.checkpoint_file(name))
    else:
        _train(params, name, source, device)


def _take(source: Source, weights: Path, output: Path) -> None:
    """Published weights, renamed and checked against the architecture."""
    tensors = checkpoints.read_published(weights)
    if "classifier.weight" not in tensors:
        raise UserError(f"{weights} does not fit a {source.network}: it has no fc.weight")
    network = ResNet(source.network, classes=tensors["classifier.weight"].shape[0])
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"{weights} does not fit a {source.network}: {error}") from None
    about = {"network": source.network.model_dump(), "weights": str(weights)}
    checkpoints.save(output, network, about)


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
    test_images, test_labels = (
        to_device(dataset.test_images, device),
        dataset.test_labels.to(device),
    )
    network.eval()
    about = {
        "network": source.network.model_dump(),
        "data": source.data,
        "data_fingerprint": dataset.train_fingerprint,
        "pretraining": recipe.model_dump(),
        "test_accuracy": accuracy(network, augment, test_images, test_labels),
        "seconds": time.monotonic() - start,
        **environment(device),
    }
    checkpoints.save(files.checkpoint_file(name), network, about)


def _rate(recipe: Pretraining, epoch: float) -> float:
    """The learning rate at a point in time, in epochs from the start."""
    if recipe.schedule == "constant":
        return recipe.lr
    return cosine(epoch, recipe.epochs, recipe.lr, 0.0)
