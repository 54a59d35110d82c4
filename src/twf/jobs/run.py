"""One run from its inputs to its record."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from twf import files
from twf.data import inputs, preflight, store
from twf.errors import UserError
from twf.gpus import cpu
from twf.jobs import checkpoints, replaced
from twf.jobs.arithmetic import set_arithmetic
from twf.jobs.code import LOOP, method_module
from twf.jobs.provenance import arithmetic_units, code_origin, device_and_versions, device_name
from twf.jobs.resume import keeping
from twf.learning import loop, tasks
from twf.learning.evaluation.metrics import final_average_accuracy
from twf.progress import progress
from twf.results import record
from twf.study import Run
from twf.study.params import Params
from twf.tracking.live import start_tracking


def execute(
    params: Params,
    run: Run,
    device: torch.device,
    save_every: float = math.inf,
    execution: str = "plain",
) -> None:
    """Train, evaluate, and write the record.

    The run's state is saved every `save_every` seconds and after each task; where there is one, the
    run goes on from it. Where the record was written too, because the process was killed just then,
    the state is removed and nothing is trained; nor where a record of these parameters was replaced
    by another and is still kept. Raises `UserError` where another process
    is at this run, or what it starts from is stale, and `twf.jobs.resume.Stopped` where SIGTERM or
    SIGINT ended it.
    """
    for name in filter(None, (run.data, run.source_data)):
        require_images(run, name)
        inputs.require_data(name, params.datasets[name])
    inputs.require_network(params, run.source)
    dataset = store.load(files.data_file(run.data))
    source = store.load(files.data_file(run.source_data)) if run.source_data is not None else None
    checkpoint = checkpoints.load(files.checkpoint_file(run.source), run.network)
    if run.held_out is not None:
        dataset = tasks.without_test_set(dataset, run.held_out, run.seed)
    _check_tasks(run, dataset)
    started = datetime.now(UTC)
    machine = device_and_versions(device)
    made_by = code_origin(LOOP, method_module(run.method))
    made_from = {
        "network_sha256": inputs.tensors_sha256(files.checkpoint_file(run.source)),
        "train_fingerprint": dataset.train_fingerprint,
        "test_fingerprint": dataset.test_fingerprint,
    }
    if source is not None:
        made_from |= {
            "source_train_fingerprint": source.train_fingerprint,
            "source_test_fingerprint": source.test_fingerprint,
        }
    origin = {
        "inputs": made_from,
        "versions": machine["versions"],
        "execution": execution,
        "precision": set_arithmetic(run.precision, execution, device),
    }
    deterministic = device.type == "cpu" or torch.are_deterministic_algorithms_enabled()
    guard = origin | {"parameters": run.digest, "deterministic": deterministic}
    guard |= arithmetic_units(device)
    guard["code"] = made_by["method_hash"]  # a commit that changes none of it keeps the state
    provenance = origin | {
        "code": made_by,
        "gpu": machine["gpu"],
        "deterministic": deterministic,
    }
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    before = columns_before(run, provenance, started, device)
    path = files.record_file(run.study, run.id)
    with keeping(files.state_file(run.study, run.id), guard, save_every) as keeper:
        if _is_recorded(path, keeper.path, run, origin | {"code": made_by}):
            keeper.forget()
            print(f"{path}: recorded before this call")
            return
        if (again := replaced.take(run, made_by["method_hash"], origin)) is not None:
            keeper.forget()
            print(f"{path}: as it was before it was replaced; {_ending(again)}", flush=True)
            return
        steps = len(dataset.train_labels) // run.phases // run.stream_batch
        begins = (
            f"begins: {run.phases} tasks, {run.epochs} epochs each, about {steps} steps an epoch"
        )
        with (
            start_tracking(params.tracking, before) as tracker,
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
            keeper.wait()  # the record is then newer than the state
            kept = replaced.keep(run, made_from)
            record.write(path, row)
            tracker.finish(row)
        keeper.forget()  # last: what is killed before it goes on from the last task's end
    with contextlib.suppress(OSError):  # a full disk costs the log a line, not the record
        if kept is not None:
            print(
                f"the record before it, of other parameters or inputs, is kept: {kept}\n"
                f"(at most {replaced.KEPT} of a run; once these are as they were, it is taken "
                "again; `twf clean` removes it)"
            )
        print(f"{path}: {_ending(row)}", flush=True)


def require_images(run: Run, name: str) -> None:
    """Raise `UserError` that says what a run needs a data set for, where that is not there."""
    if files.data_file(name).exists():
        return
    raise UserError(
        f"no {files.data_file(name)}: `twf data prepare {name}` makes it. "
        f"{preflight.needed_by(run, name)}"
    )


def _ending(row: Mapping[str, Any]) -> str:
    """What came out of a run, by its record's columns, for its log."""
    if row["reason"] is not None:
        return f"diverged: {row['reason']}"
    matrices = {"Class-IL": row["accuracy_class_il"], "Task-IL": row["accuracy_task_il"]}
    said = (f"{title} {final_average_accuracy(m):.2f} %" for title, m in matrices.items())
    return f"final average accuracy {', '.join(said)}"


def _is_recorded(path: Path, state: Path, run: Run, origin: dict[str, Any]) -> bool:
    """Whether a record is newer than the saved state, and what this process would write anew."""
    try:
        if path.stat().st_mtime_ns < state.stat().st_mtime_ns:
            return False
        (row,) = record.read(path, ["digest", "provenance"]).to_pylist()
    except (FileNotFoundError, UserError):
        return False
    return row["digest"] == run.digest and origin.items() <= record.provenance(row).items()


def columns_before(
    run: Run, provenance: dict[str, Any], started: datetime, device: torch.device
) -> dict[str, Any]:
    """The record's columns that are known before training.

    `provenance` says by which code, inputs, versions and devices; the parameters are the run's.
    """
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
        "device": device_name(device),
        "host": os.uname().nodename,
        "digest": run.digest,
        "provenance": json.dumps({"parameters": json.loads(run.parameters)} | provenance),
    }


def _check_tasks(run: Run, dataset: store.Dataset) -> None:
    """Raise `UserError` where a task has too few images, or the buffer too little room."""
    trained, tested = (
        [len(positions) for positions in tasks.split(labels, run.tasks, run.classes)]
        for labels in (dataset.train_labels, dataset.test_labels)
    )
    if min(trained) < run.stream_batch:
        its_own = "batch_size" in type(run.hyperparameters).model_fields
        key = f"methods.{run.method}.batch_size" if its_own else "batch_size"
        raise UserError(
            f"run {run.id}: the {min(trained)} training images of task "
            f"{trained.index(min(trained))} do not fill a batch of {run.stream_batch}; lower "
            f"benchmarks.{run.benchmark}.{key}"
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
