"""A training step of the authors' published code, driven from a checkout of it.

The images are random. The stream's batch, loaded and augmented, is made before the clock starts,
which spares the published code what our step does itself.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from twf.errors import UserError
from twf.forecast.timing import random_images
from twf.study import Run

NAME = "published code"
FIRST_STEPS = 6  # in the first task, to fill the buffer
BATCHES = 4  # of the second task, made beforehand and used in turn

BENCHMARKS = {"split-cifar10": "seq-cifar10", "split-cifar100": "seq-cifar100"}
# its name of each method, and of the hyperparameters
METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "joint": ("joint", {}),
    "finetune": ("sgd", {}),
    "oewc": ("ewc_on", {"lambda_ewc": "e_lambda", "gamma": "gamma"}),
    "lwf": ("lwf", {"alpha": "alpha", "tau": "softmax_temp", "weight_decay": "wd_reg"}),
    "er": ("er", {}),
    "co2l": (
        "co2l",
        {
            "batch_size": "batch_size",
            "tau": "temp",
            "kappa": "current_temp",
            "kappa_star": "past_temp",
            "lambda_ird": "distill_power",
            "lr_linear": "linear_lr",
            "lr_linear_decay": "linear_lr_decay",
        },
    ),
    "icarl": ("icarl", {"weight_decay": "wd_reg"}),
    "er-ace": ("er_ace", {}),
    "derpp": ("derpp", {"alpha": "alpha", "beta": "beta"}),
    "twf": (
        "twf",
        {
            "alpha": "der_alpha",
            "beta": "der_beta",
            "lambda_diversity": "lambda_diverse_loss",
            "lambda_fp": "lambda_fp",
            "lambda_fp_replay": "lambda_fp_replay",
        },
    ),
}
OBSERVED = ("finetune", "er", "er-ace", "derpp", "twf")  # their step takes a batch and no more
# modules that it imports and that a step does not use, with the names it takes from them
UNUSED = {"cv2": ["transform"], "onedrivedownloader": ["download"], "setproctitle": []}


def second_task_step(checkout: Path, run: Run, device: torch.device) -> Callable[[], object]:
    """A step of the second task by the code in `checkout`, with the run's batch and buffer."""
    if run.benchmark not in BENCHMARKS or run.method not in OBSERVED:
        raise UserError(
            f"--reference does not know {run.method} on {run.benchmark}; it knows "
            f"{', '.join(OBSERVED)} on {', '.join(BENCHMARKS)}"
        )
    with imports_from(checkout):
        dataset, method, _ = made(run)
        if method.device.type != device.type:
            raise UserError(f"the published code runs on {method.device}: say --device cuda")
        method.net.to(method.device)
        # what it would download: images for one look at shapes, and pretrained weights
        some = torch.zeros(4, 3, 32, 32)
        method.load_aux_dataset = lambda: setattr(method, "aux_iter", iter([[some]]))
        method.load_initial_checkpoint = lambda *_, **__: None
        method.begin_task(dataset)
        method.net.train()
        for _ in range(FIRST_STEPS):
            method.observe(*_batch(dataset, run, 0, device))
    method.task = method.current_task = 1
    batches = itertools.cycle([_batch(dataset, run, 1, device) for _ in range(BATCHES)])
    return lambda: method.observe(*next(batches))


def made(run: Run) -> tuple[Any, Any, Any]:
    """Its data set and method for a run, with the arguments that its own parser makes of ours."""
    name, names = METHODS[run.method]
    module = importlib.import_module(f"models.{name}")
    values: dict[str, Any] = {
        "dataset": BENCHMARKS[run.benchmark],
        "model": name,
        "lr": run.hyperparameters.lr,
        "batch_size": run.batch_size,
        "n_epochs": run.epochs,
        "pre_dataset": "cifar100",
        **{theirs: getattr(run.hyperparameters, ours) for ours, theirs in names.items()},
    }
    if run.buffer is not None:
        values |= {"buffer_size": run.buffer, "minibatch_size": run.batch_size}
    if run.method == "twf":
        values["resize_maps"] = 1
    words = [word for key, value in values.items() for word in (f"--{key}", str(value))]
    arguments = module.get_parser().parse_args(words)
    dataset = importlib.import_module("datasets").get_dataset(arguments)
    (method,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and getattr(value, "NAME", None) == name
    ]
    network, loss = dataset.get_backbone(), torch.nn.functional.cross_entropy
    return dataset, method(network, loss, arguments, dataset.get_transform()), arguments


def _batch(dataset: Any, run: Run, task: int, device: torch.device) -> list[Tensor]:
    """Augmented images, labels, and the images as its buffer takes them."""
    from PIL import Image

    raw = random_images(run.batch_size, 32)
    each = dataset.N_CLASSES_PER_TASK
    labels = torch.randint(task * each, (task + 1) * each, (run.batch_size,))
    augmented = torch.stack([dataset.TRANSFORM(Image.fromarray(image.numpy())) for image in raw])
    plain = raw.permute(0, 3, 1, 2).float() / 255
    return [tensor.to(device) for tensor in (augmented, labels, plain)]


@contextlib.contextmanager
def imports_from(checkout: Path) -> Any:
    """Import its modules, which look for files where they lie; stand in for what is missing."""
    if not (checkout / "models").is_dir():
        raise UserError(f"--reference {checkout} is no checkout of the published code")
    _import_torchvision()
    for name, attributes in UNUSED.items():
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            module = ModuleType(name)
            module.__dict__.update(dict.fromkeys(attributes))
            sys.modules[name] = module
    sys.path.insert(0, str(checkout.resolve()))
    try:
        with contextlib.chdir(checkout):
            yield
    finally:
        sys.path.remove(str(checkout.resolve()))


def _import_torchvision() -> None:
    """PyPI's torchvision expects operators of its CUDA library beside a CPU build of torch."""
    if torch.version.cuda is None and "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
