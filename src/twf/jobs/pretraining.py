"""Training a network on a source, or taking weights from elsewhere: the start of every run."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import torch

from twf import files
from twf.data import store
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs.arithmetic import set_arithmetic
from twf.jobs.provenance import arithmetic_units, code_origin, device_and_versions
from twf.jobs.resume import keeping
from twf.jobs.weights import read_network
from twf.learning.augmentation import Augment
from twf.learning.evaluation.accuracy import accuracy, to_device
from twf.learning.models.resnet import ResNet
from twf.learning.pretraining import DivergedError, supervised, train
from twf.learning.step import executed
from twf.progress import progress
from twf.study import params, products
from twf.study.code import PRETRAINING
from twf.study.params import Source


def pretrain(
    name: str,
    plan: products.Values,
    device: torch.device,
    save_every: float = math.inf,
    execution: str = "plain",
) -> None:
    """Make the checkpoint of the source `name` by its plan: train it, or take the weights it names.

    Training goes on from its state, saved every `save_every` seconds. Raises `UserError` and
    `Stopped` as `twf.jobs.run.execute` does, and `UserError` where this would replace a network
    that was imported.
    """
    made, output = products.made_network(name) or {}, files.checkpoint_file(name)
    if products.IMPORTED in made and made != plan:
        why = products.shortened(products.changes(made, plan))
        raise UserError(
            f"{output} was imported, and is not as planned ({why}): `twf pretrain import {name} "
            "FILE` again, or delete it to have it made"
        )
    source, data = products.planned_source(plan)
    if source.weights is not None:
        import_weights(name, plan, Path(source.weights), device)
        return
    assert data is not None and source.data is not None  # `Source` holds this
    recipe = source.pretraining
    assert recipe is not None
    require_data(source.data, plan)
    dataset = store.load(files.data_file(source.data))
    if len(dataset.train_labels) < recipe.batch_size:
        raise UserError(
            f"{len(dataset.train_labels)} training images of {source.data} do not fill a batch of "
            f"{recipe.batch_size}; lower sources.{name}.pretraining.batch_size"
        )
    precision = set_arithmetic(recipe.precision, execution, device)
    made_by = code_origin(PRETRAINING)
    guard = {
        "plan": products.digest(plan),
        "data": dataset.train_fingerprint,
        "code": made_by["method_hash"],
        **arithmetic_units(device),
        "execution": execution,
        "precision": precision,
    } | device_and_versions(device)["versions"]
    method = supervised(source, data, device)
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
            **plan,
            "plan": plan,
            "data_fingerprint": dataset.train_fingerprint,
            "execution": execution,
            "precision": precision,
            "test_accuracy": _test_accuracy(data, network, dataset, device),
            "seconds": keeper.seconds,
            "code": made_by,
            **device_and_versions(device),
        }
        checkpoints.save(output, network, about)
        keeper.forget()
    right = f"{about['test_accuracy']:.2f} % of the test images of {source.data} right"
    print(f"{output}: {right}")


def import_weights(name: str, plan: products.Values, file: Path, device: torch.device) -> None:
    """Make the checkpoint of the source `name` of weights that were trained elsewhere.

    Its accuracy on the source's test images is measured where their data are prepared, and said.
    A checkpoint of ours, as `export_weights` writes them, keeps what it says of itself: so the
    same file gives the same checkpoint everywhere. Where it is not the file that the source names,
    the checkpoint says so in its plan, which is then taken as long as `params.yaml` has the rest.

    Raises `UserError` where the weights do not fit the source's network or its classes, or
    the source names them and says otherwise than they do.
    """
    source, data = products.planned_source(plan)
    output = files.checkpoint_file(name)
    network = read_network(file, source.network, data.classes if data else None).to(device)
    own = checkpoints.about(file)
    about: dict[str, Any] = own or {
        "network": source.network.model_dump(),
        "data": source.data,
        "test_accuracy": None,
        "code": code_origin(PRETRAINING),
    }
    names = ("network", "data", "dataset", "pretraining")
    recipe: products.Values = {name: plan[name] for name in names if name in plan}
    otherwise = products.changes(own or {}, recipe, common_only=True)
    is_named = _is_named(source, file)
    if is_named and otherwise:
        raise UserError(
            f"{file} was trained otherwise than sources.{name} says "
            f"({products.shortened(otherwise)}): correct that in params.yaml, or leave its "
            "'weights' out, to have it trained"
        )
    carried = {key: value for key, value in plan.items() if key != products.IMPORTED}
    sha = files.sha256(file)
    if products.WEIGHTS_SHA256 in carried and is_named:
        carried[products.WEIGHTS_SHA256] = sha
    if not is_named:
        carried[products.IMPORTED] = sha
    about |= {"plan": carried, "weights": file.name, "weights_sha256": sha}
    if data is None:
        said = f"accuracy not measured: sources.{name} names no data"
    elif products.made_data(source.data or "") != data_plan(plan):
        said = (
            f"accuracy not measured: no {files.data_file(source.data or '')} as planned; "
            f"`twf data prepare {source.data}` makes it"
        )
    else:
        dataset = store.load(files.data_file(source.data or ""))
        right = _test_accuracy(data, network, dataset, device)
        said = f"{right:.2f} % of the test images of {source.data} right"
        if own is None:
            about |= {"data_fingerprint": dataset.train_fingerprint, "test_accuracy": right}
        elif own["test_accuracy"] is not None:
            said += f"; {own['test_accuracy']:.2f} % where it was exported"
        if right < 1.5 * 100 / len(dataset.classes):
            said += ", hardly more than by chance: its classes may stand in another order"
    if otherwise:
        said += f"; sources.{name} says otherwise ({products.shortened(otherwise)})"
    checkpoints.save(output, network, about)
    print(f"{output}: {said}")


def _is_named(source: Source, file: Path) -> bool:
    """Whether a file has the weights that a source names: by content, or name where none is there.

    A copy of them may lie elsewhere.
    """
    if source.weights is None:
        return False
    named = Path(source.weights)
    same = named.is_file() and files.sha256(named) == files.sha256(file)
    return same if named.is_file() else named.name == file.name


def data_plan(plan: products.Values) -> products.Values:
    """The plan of the data set that a network's plan is of."""
    return {key: value for key, value in plan["dataset"].items() if key != "augmentation"}


def require_data(name: str, plan: products.Values) -> None:
    """Raise `UserError` where the data of a network's plan are not there, or not as planned."""
    made, remedy = products.made_data(name), f"`twf data prepare {name}`"
    products.require_as_planned(files.data_file(name), made, data_plan(plan), remedy)


def export_weights(name: str, plan: products.Values, file: Path, device: torch.device) -> None:
    """Write the checkpoint of the source `name` in half precision, to be shared and imported.

    A safetensors file of half the size, with what the checkpoint says of itself; the accuracy in it
    is that of the rounded weights. Raises `UserError` where checkpoint or data are missing or
    stale, or a weight is beyond the range of half precision.
    """
    source, data = products.planned_source(plan)
    if file.suffix != ".safetensors":
        raise UserError(f"{file} would be a safetensors file; let its name end so")
    if file.resolve() == files.checkpoint_file(name).resolve():
        raise UserError(f"{file} is the checkpoint itself, and would be lost; name another file")
    remedy = f"`twf pretrain train {name}`"
    made = products.made_network(name)
    products.require_as_planned(files.checkpoint_file(name), made, plan, remedy)
    checkpoint = checkpoints.load(files.checkpoint_file(name), source.network)
    network = checkpoint.network().half()
    beyond = [name for name, t in network.state_dict().items() if not t.isfinite().all()]
    if beyond:
        raise UserError(
            f"{files.checkpoint_file(name)}: {beyond[0]} is not finite in half precision; share "
            "the checkpoint as it is"
        )
    about = checkpoint.about | {"exported_from": checkpoint.sha256, "test_accuracy": None}
    if source.data is not None and data is not None:
        require_data(source.data, plan)
        dataset = store.load(files.data_file(source.data))
        rounded = copy.deepcopy(network).float().to(device)
        about["test_accuracy"] = _test_accuracy(data, rounded, dataset, device)
    checkpoints.save(file, network, about)
    size = file.stat().st_size / 2**20
    accuracy_said = "" if data is None else f", {about['test_accuracy']:.2f} % right"
    print(f"{file}: {size:.1f} MiB{accuracy_said}")


def _test_accuracy(
    data: params.Dataset, network: ResNet, dataset: store.Dataset, device: torch.device
) -> float:
    """Per cent of the test images of `data` that the network, put into evaluation mode, knows."""
    network.eval()
    augment = Augment(data.augmentation, device)
    images, labels = to_device(dataset.test_images, device), dataset.test_labels.to(device)
    return accuracy(network, augment, images, labels)
