"""What surrounds the training step: pretraining, the buffer, its masks, evaluation."""

from __future__ import annotations

import torch
from torch import Tensor
from twf.forecast.timing import random_images

from benchmarks import ceiling
from benchmarks.shapes import method_of, step_of
from benchmarks.timing import Effort, Row, rate
from twf.learning.evaluation.accuracy import BATCH, accuracy_per_task
from twf.learning.methods.twf import Twf
from twf.learning.precision import set_precision
from twf.learning.pretraining import Supervised, supervised
from twf.learning.randomness import Random
from twf.learning.replay.buffer import ReservoirBuffer
from twf.learning.step import Plain, executed
from twf.study import Run
from twf.study.params import Params


def pretraining(
    params: Params,
    run: Run,
    execution: str,
    precision: str,
    device: torch.device,
    effort: Effort,
    limits: Row,
) -> Row:
    """A step of training the network that a run starts from, on its source."""
    source = params.sources[run.source]
    assert source.data is not None and source.pretraining is not None
    recipe = source.pretraining.model_copy(update={"precision": precision})
    precision = set_precision(precision, device)
    data = params.datasets[source.data]
    method = supervised(source.model_copy(update={"pretraining": recipe}), data, device)
    method.learner.network.train()
    images = random_images(recipe.batch_size, data.size).permute(0, 3, 1, 2).to(device)
    labels = torch.arange(len(images), device=device) % method.learner.classes
    needs = ceiling.count(step_of(begun("plain", method, images, labels), images))
    step = step_of(begun(execution, method, images, labels), images)
    row = rate(step, len(images), device, effort)
    return {
        "measurement": "pretraining step",
        "benchmark": run.benchmark,
        "source": run.source,
        "execution": execution,
        "precision": precision,
        **row,
        **ceiling.shares(needs, row["milliseconds"], limits),
    }


def begun(execution: str, method: Supervised, images: Tensor, labels: Tensor) -> Plain:
    """Steps of pretraining on these images."""
    steps = executed(execution, method)
    steps.begin(images, labels)
    return steps


def replay(params: Params, run: Run, device: torch.device, effort: Effort) -> list[Row]:
    """Insertion into a buffer of TwF's rows, a draw from it, and the packing of their masks."""
    method = method_of(params, run, device)
    assert isinstance(method, Twf) and method.propagation is not None and run.buffer is not None
    packer, count = method.propagation.packer, run.batch_size
    generator = Random(0, device)
    gates = [generator.integers(2, count, *shape).float() for shape in packer.shapes]
    packed = packer.pack(gates)
    images = random_images(count, params.datasets[run.data].size).permute(0, 3, 1, 2).to(device)
    rows = {
        "images": images,
        "labels": torch.zeros(count, dtype=torch.int64, device=device),
        "logits": torch.zeros(count, run.classes, device=device),
        "masks": packed,
    }
    buffer = ReservoirBuffer(run.buffer, generator)
    works = {
        "buffer insertion": lambda: buffer.insert(**rows),
        "buffer draw": lambda: buffer.draw(count),
        "mask packing": lambda: packer.pack(gates),
        "mask unpacking": lambda: packer.unpack(packed),
    }
    return [
        {"measurement": name, "benchmark": run.benchmark, "buffer": run.buffer}
        | rate(work, count, device, effort)
        for name, work in works.items()
    ]


def evaluation(params: Params, run: Run, device: torch.device, effort: Effort) -> Row:
    """Accuracy under both protocols on two batches of test images."""
    learner = method_of(params, run, device).learner
    learner.network.eval()
    images = random_images(2 * BATCH, params.datasets[run.data].size)
    images = images.permute(0, 3, 1, 2).contiguous().to(device)
    labels = torch.arange(len(images), device=device) % run.classes

    def evaluate() -> None:
        logits, augment = learner.network, learner.augment
        accuracy_per_task(logits, augment, images, labels, run.tasks, run.classes)

    return {"measurement": "evaluation", "benchmark": run.benchmark} | rate(
        evaluate, len(images), device, effort
    )
