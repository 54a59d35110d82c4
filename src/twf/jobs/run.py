"""One run from its inputs to its record."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch

from twf import files
from twf.data import store
from twf.errors import UserError
from twf.gpus import cpu
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.jobs.provenance import Origin, set_arithmetic
from twf.jobs.resume import keeping
from twf.learning import loop, tasks
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.progress import progress
from twf.results import record
from twf.study import Run, products
from twf.study.code import LOOP, method_module
from twf.study.params import Tracking
from twf.tracking.live import start_tracking


def execute(
    run: Run,
    plan: products.Values,
    tracking: Tracking,
    device: torch.device,
    save_every: float = math.inf,
    execution: str = "plain",
) -> None:
    """Train, evaluate, and write the record, which carries the `plan` that it is made by.

    The run's state is saved every `save_every` seconds and after each task; a run that has one goes
    on from there. Raises `UserError` where another process is at this run, or what it starts from
    or its code is not as planned, and `twf.jobs.resume.Stopped` where SIGTERM or SIGINT ended it.
    """
    require_inputs(run, plan)
    dataset, source, checkpoint, inputs = read_inputs(run)
    if run.held_out is not None:
        dataset = tasks.without_test_set(dataset, run.held_out, run.seed)
    precision = set_arithmetic(run.precision, execution, device)
    roots = (LOOP, method_module(run.method))
    origin = Origin.here(device, execution, precision, inputs, *roots)
    if plan.get("code", origin.code["method_hash"]) != origin.code["method_hash"]:
        raise UserError(
            f"the code of {run.method} was changed since {files.run_plan(run.study, run.id)} was "
            "written: call again, and the change is planned"
        )
    _check_tasks(run, dataset)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = columns_before(run, plan, origin, datetime.now(UTC))
    path = files.record_file(run.study, run.id)
    state, guard = files.state_file(run.study, run.id), origin.guard(plan, device)
    steps = len(dataset.train_labels) // run.phases // run.stream_batch
    begins = f"begins: {run.phases} tasks, {run.epochs} epochs each, about {steps} steps an epoch"
    with keeping(state, guard, save_every) as keeper:
        with (
            start_tracking(tracking, before) as tracker,
            progress(run.id, run.phases * run.epochs, begins, steps) as advance,
        ):
            keeper.after_step = advance.part
            outcome = loop.train(
                run,
                dataset,
                source,
                checkpoint.tensors,
                device,
                tracker,
                advance,
                keeper,
                execution,
            )
            measured = {"seconds": keeper.seconds, "peak_memory_mib": peak_memory_mib(device)}
            row = before | vars(outcome) | {"status": outcome.status} | measured
            keeper.wait()  # the last task's end is saved before the record is there
            record.write(path, row)
            tracker.finish(row)
        keeper.forget()  # last: what is killed before it goes on from the last task's end
    with contextlib.suppress(OSError):  # a full disk costs the log a line, not the record
        print(f"{path}: {_ending(row)}", flush=True)


def read_inputs(
    run: Run,
) -> tuple[store.Dataset, store.Dataset | None, Checkpoint, dict[str, str]]:
    """The data of a run, those of its source where it needs them, the network it starts from.

    And their hashes, as its record has them. Raises `UserError` with the remedy where one is not
    there.
    """
    dataset = store.load(files.data_file(run.data))
    source = store.load(files.data_file(run.source_data)) if run.source_data is not None else None
    checkpoint = checkpoints.load(files.checkpoint_file(run.source), run.network)
    hashes = {"network_sha256": checkpoints.digest("", checkpoint.tensors)}
    for prefix, images in (("", dataset), ("source_", source)):
        if images is not None:
            hashes[f"{prefix}train_fingerprint"] = images.train_fingerprint
            hashes[f"{prefix}test_fingerprint"] = images.test_fingerprint
    return dataset, source, checkpoint, hashes


def require_inputs(run: Run, plan: products.Values) -> None:
    """Raise `UserError` where data or network of a run are not there, or not as planned."""
    for name, planned in plan["data"].items():
        remedy = f"`twf data prepare {name}`"
        if name != run.data:
            remedy = f"run {run.id} needs the source's images too; {remedy}"
        made = products.made_data(name)
        products.require_as_planned(files.data_file(name), made, planned, remedy)
    made, remedy = products.made_network(run.source), f"`twf pretrain train {run.source}`"
    products.require_as_planned(files.checkpoint_file(run.source), made, plan["network"], remedy)


def _ending(row: Mapping[str, Any]) -> str:
    """What came out of a run, by its record's columns, for its log."""
    if row["reason"] is not None:
        return f"diverged: {row['reason']}"
    matrices = {"Class-IL": row["accuracy_class_il"], "Task-IL": row["accuracy_task_il"]}
    means = (f"{title} {final_average_accuracy(m):.2f} %" for title, m in matrices.items())
    return f"final average accuracy {', '.join(means)}"


def columns_before(
    run: Run, plan: products.Values, origin: Origin, started: datetime
) -> dict[str, Any]:
    """The record's columns that are known before training.

    Its provenance has the plan, whose parameters stand under their own name, and the `origin`.
    """
    rest = {key: value for key, value in plan.items() if key != "parameters"}
    made_by = {key: value for key, value in vars(origin).items() if key != "device"}
    return {
        "run": run.id,
        "study": run.study,
        "benchmark": run.benchmark,
        "source": run.source,
        "method": run.method,
        "pretrained": run.pretrained,
        "buffer": run.buffer,
        "seed": run.seed,
        "started": started,
        "device": origin.device,
        "host": os.uname().nodename,
        "digest": run.digest,
        "provenance": json.dumps({"parameters": plan["parameters"], "plan": rest} | made_by),
    }


def _check_tasks(run: Run, dataset: store.Dataset) -> None:
    """Raise `UserError` where a task has too few images, or the buffer too little room."""
    trained, tested = (
        [len(positions) for positions in tasks.split(labels, run.tasks, run.classes)]
        for labels in (dataset.train_labels, dataset.test_labels)
    )
    if min(trained) < run.stream_batch:
        raise UserError(
            f"run {run.id}: the {min(trained)} training images of task "
            f"{trained.index(min(trained))} do not fill a batch of {run.stream_batch}; lower "
            f"benchmarks.{run.benchmark}.batch_size, or the method's own"
        )
    if run.method == "icarl" and run.buffer is not None and run.buffer < run.classes:
        raise UserError(
            f"run {run.id}: iCaRL keeps an image of each of {run.classes} classes, and its buffer "
            f"has room for {run.buffer}"
        )
    if min(tested) == 0:
        raise UserError(
            f"run {run.id}: no image of task {tested.index(0)} to evaluate on; raise the search's "
            "held_out"
        )


def peak_memory_mib(device: torch.device) -> float:
    """The most memory held at once: PyTorch's tensors on a GPU, the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return cpu.peak_memory_mib()
