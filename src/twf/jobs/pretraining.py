"""Training a network on a source, or taking weights from elsewhere: the start of every run."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch

from twf import files
from twf.data import inputs, store
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs.arithmetic import set_arithmetic
from twf.jobs.code import PRETRAINING
from twf.jobs.provenance import arithmetic_units, code_origin, device_and_versions
from twf.jobs.resume import keeping
from twf.jobs.weights import read_network
from twf.learning.augmentation import Augment
from twf.learning.evaluation.accuracy import accuracy, to_device
from twf.learning.models.resnet import ResNet
from twf.learning.pretraining import DivergedError, supervised, train
from twf.learning.step import executed
from twf.progress import progress
from twf.study.params import Params


def pretrain(
    params: Params,
    name: str,
    device: torch.device,
    save_every: float = math.inf,
    execution: str = "plain",
) -> None:
    """Make the checkpoint of the source `name`: train it, or take the weights that it names.

    Training goes on from its state, saved every `save_every` seconds. Raises `UserError` and
    `Stopped` as `twf.jobs.run.execute` does.
    """
    source = params.named_source(name)
    if source.weights is not None:
        import_weights(params, name, Path(source.weights), device)
        return
    assert source.data is not None and source.pretraining is not None  # `Source` holds this
    recipe = source.pretraining
    inputs.require_data(source.data, params.datasets[source.data])
    dataset = store.load(files.data_file(source.data))
    if len(dataset.train_labels) < recipe.batch_size:
        raise UserError(
            f"{len(dataset.train_labels)} training images of {source.data} do not fill a batch of "
            f"{recipe.batch_size}; lower sources.{name}.pretraining.batch_size"
        )
    precision = set_arithmetic(recipe.precision, execution, device)
    made_by = code_origin(PRETRAINING)
    guard = {
        "source": source.model_dump(),
        "augmentation": params.datasets[source.data].augmentation.model_dump(),
        "data": dataset.train_fingerprint,
        "code": made_by["method_hash"],
        **arithmetic_units(device),
        "execution": execution,
        "precision": precision,
    } | device_and_versions(device)["versions"]
    method = supervised(source, params.datasets[source.data], device)
    network = method.learner.network
    with keeping(files.state_file("pretrain", name), guard, save_every) as keeper:
        steps = len(dataset.train_labels) // recipe.batch_size
        begins = f"begins: {recipe.epochs} epochs of {steps} steps"
        try:
            with progress(f"pretrain {name}", recipe.epochs, begins, steps) as advance:
                keeper.after_step = advance.part
                train(executed(execution, method), dataset, keeper, advance)
        except DivergedError as error:
            raise UserError(
                f"pretraining on {name} diverged in epoch {error}; lower sources.{name}."
                "pretraining.lr"
            ) from None
        about = {
            **params.recipe(name),
            "data_fingerprint": dataset.train_fingerprint,
            "execution": execution,
            "precision": precision,
            "test_accuracy": _test_accuracy(params, source.data, network, dataset, device),
            "seconds": keeper.seconds,
            "code": made_by,
            **device_and_versions(device),
        }
        checkpoints.save(files.checkpoint_file(name), network, about)
        keeper.forget()
    right = f"{about['test_accuracy']:.2f} % of the test images of {source.data} right"
    print(f"{files.checkpoint_file(name)}: {right}")


def import_weights(params: Params, name: str, file: Path, device: torch.device) -> None:
    """Make the checkpoint of the source `name` of weights that were trained elsewhere.

    Its accuracy on the source's test images is measured where their data are prepared, and said.
    A checkpoint of ours, as `export_weights` writes them, keeps what it says of itself: so the
    same file gives the same checkpoint everywhere. Where `params.yaml` says otherwise, or names
    other weights, the checkpoint has that too: it is taken as long as `params.yaml` says so.

    Raises `UserError` where the weights do not fit the source's network or its classes, or
    `params.yaml` names them and says otherwise.
    """
    source = params.named_source(name)
    output = files.checkpoint_file(name)
    classes = None if source.data is None else params.datasets[source.data].classes
    network = read_network(file, source.network, classes).to(device)
    own = checkpoints.about(file)
    about: dict[str, Any] = own or {
        "network": source.network.model_dump(),
        "data": source.data,
        "test_accuracy": None,
        "code": code_origin(PRETRAINING),
    }
    about.pop(inputs.IN_PLACE_OF, None)  # was another import's
    planned, named = params.recipe(name), inputs.is_named(source, file)
    if named:
        inputs.require_named_weights(params, name)
    otherwise = inputs.changes(about, planned)
    unsaid = "pretraining" in planned and "pretraining" not in about
    if otherwise or unsaid or (source.weights is not None and not named):
        about[inputs.IN_PLACE_OF] = planned | {"weights": source.weights}
    about |= {"weights": file.name, "weights_sha256": files.sha256(file)}
    if source.data is None:
        said = f"accuracy not measured: sources.{name} names no data"
    elif (
        not (data := files.data_file(source.data)).exists()
        or inputs.data(source.data, params.datasets[source.data]).changes
    ):
        said = (
            f"accuracy not measured: no {data} as params.yaml asks; "
            f"`twf data prepare {source.data}` makes it"
        )
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
    if otherwise:
        said += f"; sources.{name} says otherwise ({inputs.shortened(otherwise)})"
    checkpoints.save(output, network, about)
    print(f"{output}: {said}")


def export_weights(params: Params, name: str, file: Path, device: torch.device) -> None:
    """Write the checkpoint of the source `name` in half precision, to be shared and imported.

    A safetensors file of half the size, with what the checkpoint says of itself; the accuracy in it
    is that of the rounded weights. Raises `UserError` where checkpoint or data are missing or
    stale, or a weight is beyond the range of half precision.
    """
    source = params.named_source(name)
    if file.suffix != ".safetensors":
        raise UserError(f"{file} would be a safetensors file; let its name end so")
    if file.resolve() == files.checkpoint_file(name).resolve():
        raise UserError(f"{file} is the checkpoint itself, and would be lost; name another file")
    inputs.require_network(params, name)
    checkpoint = checkpoints.load(files.checkpoint_file(name), source.network)
    network = checkpoint.network().half()
    beyond = [name for name, t in network.state_dict().items() if not t.isfinite().all()]
    if beyond:
        raise UserError(
            f"{files.checkpoint_file(name)}: {beyond[0]} is not finite in half precision; share "
            "the checkpoint as it is"
        )
    about = checkpoint.about | {"exported_from": checkpoint.sha256, "test_accuracy": None}
    if source.data is not None:
        inputs.require_data(source.data, params.datasets[source.data])
        dataset = store.load(files.data_file(source.data))
        rounded = copy.deepcopy(network).float().to(device)
        about["test_accuracy"] = _test_accuracy(params, source.data, rounded, dataset, device)
    checkpoints.save(file, network, about)
    size = file.stat().st_size / 2**20
    accuracy_said = "" if source.data is None else f", {about['test_accuracy']:.2f} % right"
    print(f"{file}: {size:.1f} MiB{accuracy_said}")


def _test_accuracy(
    params: Params, data: str, network: ResNet, dataset: store.Dataset, device: torch.device
) -> float:
    """Per cent of the test images of `data` that the network, put into evaluation mode, knows."""
    network.eval()
    augment = Augment(params.datasets[data].augmentation, device)
    images, labels = to_device(dataset.test_images, device), dataset.test_labels.to(device)
    return accuracy(network, augment, images, labels)
