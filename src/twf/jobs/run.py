"""One run from its inputs to its record."""

import json
import math
import os
from datetime import UTC, datetime

import torch

from twf import files
from twf.data import store
from twf.errors import UserError, say
from twf.gpus import cpu
from twf.jobs import checkpoints
from twf.jobs.checkpoints import Checkpoint
from twf.jobs.provenance import guard, set_up
from twf.jobs.resume import keeping
from twf.learning import loop, tasks
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.progress import Progress
from twf.results import record
from twf.study import Run, products
from twf.study.code import LOOP, method_module
from twf.study.methods import METHODS
from twf.study.params import Execution, Tracking
from twf.tracking.live import start_tracking

# the columns of a record that are a run's own
OWN = ("study", "benchmark", "source", "method", "pretrained", "buffer", "seed", "digest")


def execute(
    run: Run,
    plan: products.Values,
    tracking: Tracking,
    device: torch.device,
    save_every: float = math.inf,
    execution: Execution = "plain",
) -> None:
    """Train, evaluate, and write the record, which carries the `plan` that it is made by.

    The run's state is saved every `save_every` seconds and after each task; a run that has one goes
    on from there. Raises `UserError` where another process is at this run, or what it starts from
    or its code is not as planned, and `twf.jobs.resume.Stopped` where SIGTERM or SIGINT ended it.
    """
    for name, planned in plan["data"].items():
        file, made = files.data_file(name), products.made_data(name)
        products.require_as_planned(file, made, planned, f"`twf data prepare {name}`")
    file, made = files.checkpoint_file(run.source), products.made_network(run.source)
    products.require_as_planned(file, made, plan["network"], f"`twf pretrain {run.source}`")
    dataset, source, checkpoint, inputs = read_inputs(run)
    if run.held_out is not None:
        dataset = tasks.without_test_set(dataset, run.held_out, run.seed)
    origin = set_up(device, execution, run.precision, inputs, LOOP, method_module(run.method))
    if plan.get("code", origin["code"]["method_hash"]) != origin["code"]["method_hash"]:
        raise UserError(
            f"the code of {run.method} was changed since {files.run_plan(run.study, run.id)} was "
            "written: call again, and the change is planned"
        )
    _check_tasks(run, dataset)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    by_plan = {"parameters": plan["parameters"]}
    by_plan["plan"] = {key: value for key, value in plan.items() if key != "parameters"}
    before = {
        "run": run.id,
        **{name: getattr(run, name) for name in OWN},
        "started": datetime.now(UTC),
        "device": origin["device"],
        "host": os.uname().nodename,
        "provenance": json.dumps(by_plan | {k: v for k, v in origin.items() if k != "device"}),
    }
    path, state = files.record_file(run.study, run.id), files.state_file(run.study, run.id)
    steps = len(dataset.train_labels) // run.phases // run.stream_batch
    begins = f"begins: {run.phases} tasks, {run.epochs} epochs each, about {steps} steps an epoch"
    with keeping(state, guard(origin, plan, device), save_every) as keeper:
        with start_tracking(tracking, before) as tracker:
            progress = Progress(run.id, run.phases * run.epochs, begins, steps)
            keeper.after_step = progress.part
            told = tracker, progress, keeper
            outcome = loop.train(run, dataset, source, checkpoint.tensors, device, *told, execution)
            memory = cpu.peak_memory_mib()
            if device.type == "cuda":
                memory = torch.cuda.max_memory_allocated(device) / 2**20
            measured = {"seconds": keeper.seconds, "peak_memory_mib": memory}
            row = before | vars(outcome) | {"status": outcome.status} | measured
            record.write(path, row)
            tracker.update(row)
        keeper.done()  # last: what is killed before it goes on from the last task's end
    if outcome.reason is not None:
        ending = f"diverged: {outcome.reason}"
    else:
        matrices = (outcome.accuracy_class_il, outcome.accuracy_task_il)
        class_il, task_il = map(final_average_accuracy, matrices)
        ending = f"final average accuracy Class-IL {class_il:.2f} %, Task-IL {task_il:.2f} %"
    say(f"{path}: {ending}")


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


def _check_tasks(run: Run, dataset: store.Dataset) -> None:
    """Raise `UserError` where a task has too few images, or the buffer too little room."""
    trained, tested = (
        min(map(len, tasks.split(labels, parts, run.classes)))
        for labels, parts in ((dataset.train_labels, run.phases), (dataset.test_labels, run.tasks))
    )
    if trained < run.stream_batch:
        raise UserError(
            f"run {run.id}: the {trained} training images of a task do not fill a batch of "
            f"{run.stream_batch}; lower benchmarks.{run.benchmark}.batch_size, or the method's own"
        )
    if tested == 0:
        raise UserError(
            f"run {run.id}: no image of a task is held out; raise the search's held_out"
        )
    if METHODS[run.method].every_class and (run.buffer or 0) < run.classes:
        raise UserError(
            f"run {run.id}: {METHODS[run.method].title} keeps an image of each of {run.classes} "
            f"classes: at least {run.classes} in the `buffers` that params.yaml gives"
        )
