"""A training step of the authors' published code, driven from a checkout of it.

The images are random. The stream's batch, loaded and augmented, is made before the clock starts,
which spares the published code what our step does itself.
"""

import contextlib
import copy
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

from benchmarks.shapes import random_images
from twf.errors import UserError
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
        {"batch_size": "batch_size", "tau": "temp", "kappa": "current_temp"}
        | {"kappa_star": "past_temp", "lambda_ird": "distill_power"}
        | {"lr_linear": "linear_lr", "lr_linear_decay": "linear_lr_decay"},
    ),
    "icarl": ("icarl", {"weight_decay": "wd_reg"}),
    "er-ace": ("er_ace", {}),
    "derpp": ("derpp", {"alpha": "alpha", "beta": "beta"}),
    "twf": (
        "twf",
        {"alpha": "der_alpha", "beta": "der_beta", "lambda_diversity": "lambda_diverse_loss"}
        | {"lambda_fp": "lambda_fp", "lambda_fp_replay": "lambda_fp_replay"},
    ),
}
# modules that it imports and that a step does not use, with the names it takes from them
UNUSED = {"cv2": ["transform"], "onedrivedownloader": ["download"], "setproctitle": []}


def second_task_step(checkout: Path, run: Run, device: torch.device) -> Callable[[], object]:
    """A step of the second task by the code in `checkout`, with the run's batch and buffer."""
    if run.benchmark not in BENCHMARKS or run.method not in METHODS:
        raise UserError(
            f"--reference does not know {run.method} on {run.benchmark}; it knows "
            f"{', '.join(METHODS)} on {', '.join(BENCHMARKS)}"
        )
    if run.method == "joint":  # it trains at the end, in steps that are Finetune's
        run = run.model_copy(update={"method": "finetune"})
    with imports_from(checkout):
        dataset, method, _ = made(run)
        method.net.to(method.device)
        # what it would download: images for one look at shapes, and pretrained weights
        some = torch.zeros(4, 3, 32, 32)
        method.load_aux_dataset = lambda: setattr(method, "aux_iter", iter([[some]]))
        method.load_initial_checkpoint = lambda *_, **__: None
        if run.method != "co2l":  # it would double the loader's images, which `_batch` does
            method.begin_task(dataset)
        method.net.train()
        for _ in range(FIRST_STEPS):
            method.observe(*_batch(dataset, run, 0, device))
    _go_to_second_task(method)
    batches = itertools.cycle([_batch(dataset, run, 1, device) for _ in range(BATCHES)])
    return lambda: method.observe(*next(batches))


def _go_to_second_task(method: Any) -> None:
    """What passing through all images between two tasks would leave behind."""
    method.task = method.current_task = 1
    network = method.net
    if method.NAME == "ewc_on":
        method.checkpoint = network.get_params().data.clone()
        method.fish = torch.zeros_like(method.checkpoint)
    elif method.NAME == "lwf":
        method.current_task = 2  # it counts before a task
    elif method.NAME in ("icarl", "co2l"):
        method.old_net = method.prev_model = copy.deepcopy(network).eval()


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
    resnet18 = importlib.import_module("backbone.ResNet18").resnet18
    network = resnet18(run.classes, nf=run.network.width)
    loss = torch.nn.functional.cross_entropy
    return dataset, method(network, loss, arguments, dataset.get_transform()), arguments


def _batch(dataset: Any, run: Run, task: int, device: torch.device) -> list[Tensor]:
    """Augmented images, labels, and the images as its buffer takes them; what LwF has of logits."""
    from PIL import Image

    count, each = run.stream_batch, dataset.N_CLASSES_PER_TASK
    raw = random_images(count, 32)
    labels = torch.randint(task * each, (task + 1) * each, (count,))
    augmented, again = (
        torch.stack([dataset.TRANSFORM(Image.fromarray(image.numpy())) for image in raw])
        for _ in range(2)
    )
    if run.method == "co2l":
        augmented = torch.stack([augmented, again], dim=1)
    batch = [augmented, labels, raw.permute(0, 3, 1, 2).float() / 255]
    if run.method == "lwf" and task > 0:
        batch.append(torch.randn(count, run.classes))
    return [tensor.to(device) for tensor in batch]


@contextlib.contextmanager
def imports_from(checkout: Path) -> Any:
    """Import its modules, which look for files where they lie; stand in for what is missing."""
    if not (checkout / "models").is_dir():
        raise UserError(f"--reference {checkout} is no checkout of the published code")
    import_torchvision()
    if not torch.cuda.is_available():  # CO2L asks for a GPU whatever the device
        torch.Tensor.cuda = lambda tensor, **_: tensor  # type: ignore[method-assign]
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


def import_torchvision() -> None:
    """PyPI's torchvision expects operators of its CUDA library beside a CPU build of torch."""
    if torch.version.cuda is None and "torchvision" not in sys.modules:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision")
