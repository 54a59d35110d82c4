"""Whole runs of the authors' published code beside ours: same images, network, tasks and epochs.

    python -m benchmarks.parity CHECKOUT --source cifar100-w16 --method joint --seeds 20

trains on some images of CIFAR-10 in float32 on the CPU, appends the final accuracies of each run to
`benchmarks/results/parity.jsonl`, leaves out those that are there, and prints a Markdown table of
the differences. Needs `data/cifar10.safetensors` and the source's checkpoint.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial, partialmethod
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import torch
import typer
from scipy import stats
from torch import Tensor

from benchmarks import command
from benchmarks.reference import METHODS, imports_from, made
from benchmarks.shapes import planned
from twf import files
from twf.data import store
from twf.data.store import Dataset
from twf.errors import UserError
from twf.forecast.timing import Nobody
from twf.jobs import checkpoints
from twf.learning import loop
from twf.results.output import markdown_table
from twf.study import Run, reading
from twf.study.params import PROTOCOLS, Params

BENCHMARK = "split-cifar10"
RESULTS = Path("benchmarks/results/parity.jsonl")
CPU = torch.device("cpu")
Row = dict[str, Any]
Weights = dict[str, Tensor]


def ours(run: Run, data: Dataset, weights: Weights) -> Row:
    """Final accuracy on each task's images by protocol, per cent."""
    torch.set_num_threads(1)
    alone = Nobody()
    outcome = loop.train(run, data, None, weights, CPU, alone, alone.advance, alone)
    return {
        "class-il": outcome.accuracy_class_il[-1],
        "task-il": outcome.accuracy_task_il[-1],
    }


def theirs(checkout: Path, run: Run, data: Dataset, weights: Weights) -> Row:
    """The same by the code in `checkout`, of which the data and the files it asks for are replaced.

    In a process of its own: what is replaced stays so.
    """
    torch.set_num_threads(1)
    torch.manual_seed(run.seed)
    with imports_from(checkout), _silent():
        import numpy

        datasets = importlib.import_module("torchvision.datasets")
        from PIL import Image

        numpy.random.seed(run.seed)  # noqa: NPY002  # its buffer draws from it
        streams = importlib.import_module("datasets.seq_cifar10")
        streams.Image = SimpleNamespace(  # type: ignore[attr-defined]  # Pillow takes no mode now
            fromarray=lambda array, mode: Image.fromarray(array), Image=Image.Image
        )
        datasets.CIFAR10.__init__ = partialmethod(_hold, data)
        loaders = importlib.import_module("datasets.utils.continual_dataset")
        loaders.DataLoader = partial(_loader, loaders.DataLoader)  # type: ignore[attr-defined]
        dataset, method, arguments = made(run)
        if run.method == "co2l":  # stops: an empty set, which it never reads, has two layouts
            importlib.import_module("models.co2l").np = SimpleNamespace(  # type: ignore[attr-defined]
                concatenate=lambda parts: numpy.concatenate(
                    [part.reshape(-1, *parts[0].shape[1:]) for part in parts]
                )
            )
        method.load_initial_checkpoint = lambda *_, **__: _load(method.net, weights)
        some = torch.zeros(4, 3, 32, 32)
        method.load_aux_dataset = lambda: setattr(method, "aux_iter", iter([[some]]))
        training: Any = importlib.import_module("utils.training")
        training.DictxtLogger.write = lambda *_, **__: None
        found, evaluate = [], training.evaluate

        def kept(*words: Any, **options: Any) -> Any:
            found.append(evaluate(*words, **options))
            return found[-1]

        training.evaluate = kept
        arguments.non_verbose = arguments.ignore_other_metrics = True
        training.train(method, dataset, arguments)
    return dict(zip(PROTOCOLS, found[-1], strict=True))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        yield


def _hold(
    self: Any,
    data: Dataset,
    root: str,
    train: bool = True,
    transform: Any = None,
    *_: Any,
    **__: Any,
) -> None:
    """torchvision's CIFAR10, made of arrays."""
    images, labels = (
        (data.train_images, data.train_labels) if train else (data.test_images, data.test_labels)
    )
    self.data, self.targets = images.numpy().copy(), labels.tolist()
    self.transform, self.target_transform = transform, None


def _loader(loader: Any, *words: Any, **options: Any) -> Any:
    return loader(*words, **options | {"num_workers": 0})


def _load(network: Any, weights: Weights) -> Any:
    """Its names are ours; a classifier that it has replaced stays."""
    fits = {k: v for k, v in weights.items() if not k.startswith("classifier.")}
    left = network.load_state_dict(fits, strict=False)
    known = ("classifier.", "num_batches_tracked")
    assert not left.unexpected_keys
    assert all(name.startswith(known[0]) or known[1] in name for name in left.missing_keys), left
    return network


def subset(data: Dataset, train: int, test: int) -> Dataset:
    """The first images of each class, whose order in the file is that of their digests."""

    def first(labels: Tensor, count: int) -> Tensor:
        return torch.cat([(labels == c).nonzero()[:count, 0] for c in labels.unique()])

    some, others = first(data.train_labels, train), first(data.test_labels, test)
    return replace(
        data,
        train_images=data.train_images[some].clone(),
        train_labels=data.train_labels[some].clone(),
        test_images=data.test_images[others].clone(),
        test_labels=data.test_labels[others].clone(),
    )


def run_of(params: Params, method: str, source: str, epochs: int, buffer: int) -> Run:
    """The paper's run on Split CIFAR-10, with less of everything."""
    changes = {"epochs": epochs, "precision": "fp32", "source": source}
    changes["network"] = params.sources[source].network
    run = planned(params, BENCHMARK, method)
    return run.model_copy(update=changes | ({} if run.buffer is None else {"buffer": buffer}))


def table(rows: list[Row]) -> str:
    """Means over seeds, and Welch's 95 % interval of the difference, as Markdown."""
    texts = []
    for method in METHODS:
        for protocol in PROTOCOLS:
            values = {
                code: [
                    _mean(r[protocol]) for r in rows if (r["method"], r["code"]) == (method, code)
                ]
                for code in ("published", "ours")
            }
            if min(map(len, values.values())) < 2:
                continue
            both = stats.ttest_ind(values["ours"], values["published"], equal_var=False)
            interval = both.confidence_interval()
            means = {code: _mean(found) for code, found in values.items()}
            row = {"Method": method, "Protocol": protocol}
            for code, found in values.items():
                spread = stats.tstd(found)
                row[code.capitalize()] = f"{means[code]:.2f} ± {spread:.2f} (n={len(found)})"
            row["Difference"] = f"{means['ours'] - means['published']:+.2f}"
            row["95 %"] = f"{interval.low:+.2f} to {interval.high:+.2f}"
            texts.append(row)
    return markdown_table(texts)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main(
    checkout: Annotated[Path, typer.Argument(help="A checkout of the published code.")],
    source: Annotated[str, typer.Option(help="A source of params.yaml.")],
    method: Annotated[list[str] | None, typer.Option(help="All that it ships where none.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of each code and method.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Per task.")] = 4,
    buffer: Annotated[int, typer.Option(min=1)] = 200,
    train_per_class: Annotated[int, typer.Option(min=1)] = 400,
    test_per_class: Annotated[int, typer.Option(min=1)] = 200,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side, a thread each.")] = 1,
) -> None:
    """Train with both codes and compare final average accuracies."""
    params = reading.load(files.PARAMS)
    data = subset(store.load(files.data_file("cifar10")), train_per_class, test_per_class)
    weights = checkpoints.load(
        files.checkpoint_file(source), params.sources[source].network
    ).tensors
    setting = {"source": source, "epochs": epochs, "buffer": buffer}
    setting |= {"train_per_class": train_per_class, "test_per_class": test_per_class}
    rows = (
        [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []
    )
    rows = [row for row in rows if row["setting"] == setting]
    done = {(row["code"], row["method"], row["seed"]) for row in rows}
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {}
        for seed in range(seeds):
            for name in method or METHODS:
                run = run_of(params, name, source, epochs, buffer)
                run = run.model_copy(update={"seed": seed})
                works = {"ours": partial(ours), "published": partial(theirs, checkout.resolve())}
                for code, work in works.items():
                    if (code, name, seed) not in done:
                        place = {"code": code, "method": name, "seed": seed}
                        waiting[pool.submit(work, run, data, weights)] = place
        failed = []
        for finished in as_completed(waiting):
            place = waiting[finished]
            if finished.exception() is not None:  # which the others need not wait for
                failed.append(f"{place}: {finished.exception()!r}")
                print(f"failed: {failed[-1]}", file=sys.stderr)
                continue
            row = place | {"setting": setting} | finished.result()
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            rows.append(row)
    print(table(rows))
    if failed:
        raise UserError(f"{len(failed)} runs failed: the same command tries them again")


if __name__ == "__main__":
    command(main)
