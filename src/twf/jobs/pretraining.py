"""Training a network on a source, or taking weights from elsewhere: the start of every run."""

import math
from pathlib import Path
from typing import Any

import torch

from twf import files
from twf.data import registry, store
from twf.errors import UserError, few, say
from twf.jobs import checkpoints
from twf.jobs.provenance import code_origin, guard, set_up
from twf.jobs.resume import keeping
from twf.learning.augmentation import Augment
from twf.learning.evaluation.accuracy import accuracy, to_device
from twf.learning.models.resnet import ResNet
from twf.learning.pretraining import DivergedError, supervised, train
from twf.learning.step import executed
from twf.progress import Progress
from twf.study import params, products
from twf.study.code import PRETRAINING


def pretrain(
    name: str,
    plan: products.Values,
    device: torch.device,
    save_every: float = math.inf,
    execution: params.Execution = "plain",
) -> None:
    """Make the checkpoint of the source `name` by its plan: train it, or take the weights it names.

    Training goes on from its state, saved every `save_every` seconds. Raises `UserError` and
    `Stopped` as `twf.jobs.run.execute` does.
    """
    source, data = products.planned_source(plan)
    if source.weights is not None:
        _take(name, plan, device)
        return
    recipe = source.pretraining
    assert data is not None and source.data is not None and recipe is not None  # `Source` holds it
    path, made = files.data_file(source.data), products.made_data(source.data)
    products.require_as_planned(path, made, _data_plan(plan), f"`twf data prepare {source.data}`")
    dataset = store.load(path)
    steps = len(dataset.train_labels) // recipe.batch_size
    if steps == 0:
        raise UserError(
            f"sources.{name}.pretraining.batch_size is {recipe.batch_size}: {source.data} has "
            f"{len(dataset.train_labels)} training images only"
        )
    inputs = {"train_fingerprint": dataset.train_fingerprint}
    origin = set_up(device, execution, recipe.precision, inputs, PRETRAINING)
    method = supervised(source, data, device)
    state, output = files.state_file("pretrain", name), files.checkpoint_file(name)
    with keeping(state, guard(origin, plan, device), save_every) as keeper:
        begins = f"begins: {recipe.epochs} epochs of {steps} steps"
        progress = Progress(f"pretrain {name}", recipe.epochs, begins, steps)
        keeper.after_step = progress.part
        try:
            train(executed(execution, method), dataset, keeper, progress)
        except DivergedError as error:
            remedy = f"lower sources.{name}.pretraining.lr"
            raise UserError(f"pretraining on {name} diverged in epoch {error}; {remedy}") from None
        network = method.learner.network
        right = _test_accuracy(data, network, dataset, device)
        about = {"plan": plan, "data_fingerprint": dataset.train_fingerprint, **origin}
        about |= {"test_accuracy": right, "seconds": keeper.seconds}
        checkpoints.save(output, network, plan | about)
        keeper.done()
    say(f"{output}: {right:.2f} % of the test images of {source.data} right")


def _take(name: str, plan: products.Values, device: torch.device) -> None:
    """Make the checkpoint of the source `name` of the weights that it names.

    Its accuracy on the source's test images is measured where their data are prepared. A checkpoint
    of ours keeps what it says of itself, so that the same file gives the same checkpoint
    everywhere. Raises `UserError` where the weights do not fit the source's network or its classes,
    or were trained otherwise than the source says.
    """
    source, data = products.planned_source(plan)
    file = Path(str(source.weights))
    if not file.exists():
        archive = registry.of_file(file)
        remedy = f"`twf data fetch {archive}`" if archive else "put it there"
        raise UserError(f"sources.{name}.weights: no {file}: {remedy}")
    network, own = checkpoints.read_network(file, source.network, data.classes if data else None)
    keys = ("network", "data", "dataset", "pretraining")
    recipe = {key: plan[key] for key in keys if plan.get(key) is not None}  # what the source says
    if otherwise := products.changes(own, recipe, common_only=True):
        raise UserError(
            f"{file} was trained otherwise than sources.{name} says ({few(otherwise)}): correct "
            "that in params.yaml, or leave its 'weights' out, to have it trained"
        )
    sha = files.sha256(file)
    if products.WEIGHTS_SHA256 in plan:  # which may have changed since the plan was written
        plan = plan | {products.WEIGHTS_SHA256: sha}
    about: dict[str, Any] = own or {
        "network": source.network.model_dump(),
        "data": source.data,
        "test_accuracy": None,
        "code": code_origin(PRETRAINING),
    }
    about |= {"plan": plan, "weights": file.name, "weights_sha256": sha}
    result = f"accuracy not measured: sources.{name} has no data, or they are not prepared"
    if data and source.data and products.made_data(source.data) == _data_plan(plan):
        dataset = store.load(files.data_file(source.data))
        right = _test_accuracy(data, network.to(device), dataset, device)
        result = f"{right:.2f} % of the test images of {source.data} right"
        if not own:
            about |= {"data_fingerprint": dataset.train_fingerprint, "test_accuracy": right}
    checkpoints.save(files.checkpoint_file(name), network, about)
    say(f"{files.checkpoint_file(name)}: {result}")


def _data_plan(plan: products.Values) -> products.Values:
    """The plan of the data set that a network's plan is of."""
    return {key: value for key, value in plan["dataset"].items() if key != "augmentation"}


def _test_accuracy(
    data: params.Dataset, network: ResNet, dataset: store.Dataset, device: torch.device
) -> float:
    """Per cent of the test images of `data` that the network, put into evaluation mode, knows."""
    augment = Augment(data.augmentation, device)
    images, labels = to_device(dataset.test_images, device), dataset.test_labels.to(device)
    return accuracy(network.eval(), augment, images, labels)
