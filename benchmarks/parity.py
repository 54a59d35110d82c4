"""Whole runs of the authors' published code beside ours: same images, network, tasks and epochs.

    python -m benchmarks.parity CHECKOUT --source cifar100-w16 --method joint --seeds 20

trains on some images of CIFAR-10 in float32 on the CPU, appends the final accuracies of each run to
`benchmarks/results/parity.jsonl`, leaves out those that are there, and prints Markdown tables of
the differences. Needs `data/cifar10.safetensors` and the source's checkpoint.
"""

import importlib
import io
import json
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial, partialmethod
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Annotated, Any

import pandas as pd
import torch
import typer
from scipy import stats
from torch import Tensor

from benchmarks import command
from benchmarks.reference import METHODS, imports_from, made
from benchmarks.shapes import Nobody, planned
from twf import files
from twf.data import store
from twf.data.store import Dataset
from twf.errors import UserError, lookup, note
from twf.jobs import checkpoints
from twf.learning import loop
from twf.results.show import PROTOCOL_TITLES, markdown
from twf.results.statistics import of_arms
from twf.study import Run, reading
from twf.study.params import PROTOCOLS, Params

BENCHMARK = "split-cifar10"
CODES = ("published", "ours")
SETTING = {"epochs": 4, "buffer": 200, "train_per_class": 400, "test_per_class": 200}
RESULTS = Path("benchmarks/results/parity.jsonl")
CPU = torch.device("cpu")
Row = dict[str, Any]
Weights = dict[str, Tensor]


def ours(run: Run, data: Dataset, weights: Weights) -> Row:
    """Final accuracy on each task's images by protocol, per cent."""
    torch.set_num_threads(1)
    alone = Nobody()
    outcome = loop.train(run, data, None, weights, CPU, alone, alone.advance, alone)
    if outcome.reason is not None:  # its last accuracies are not final ones
        raise UserError(f"our {run.method} with seed {run.seed} diverged: {outcome.reason}")
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
    said = io.StringIO()
    with imports_from(checkout), redirect_stdout(said), redirect_stderr(said):
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
        load = loaders.DataLoader
        loaders.DataLoader = lambda *w, **o: load(*w, **o | {"num_workers": 0})  # type: ignore[attr-defined]
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
    split = "train" if train else "test"
    self.data = getattr(data, f"{split}_images").numpy().copy()
    self.targets = getattr(data, f"{split}_labels").tolist()
    self.transform, self.target_transform = transform, None


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
    some: dict[str, Any] = {}
    for split, count in (("train", train), ("test", test)):
        labels = getattr(data, f"{split}_labels")
        first = torch.cat([(labels == c).nonzero()[:count, 0] for c in labels.unique()])
        for kind in ("images", "labels"):
            some[f"{split}_{kind}"] = getattr(data, f"{split}_{kind}")[first].clone()
    return replace(data, **some)


def run_of(params: Params, name: str, source: str) -> Run:
    """The paper's run on Split CIFAR-10, with less of everything, as `SETTING` says.

    `name` is a method, or a row of the ablation, like `twf.cl`.
    """
    method, _, row = name.partition(".")
    run = planned(params, BENCHMARK, method)
    changes: Row = {"epochs": SETTING["epochs"], "precision": "fp32", "source": source}
    changes["network"] = params.sources[source].network
    if row:
        rows = params.studies["paper"].experiments["ablation"].variants
        changed = lookup("row", rows, row, "the ablation").hyperparameters
        changes["hyperparameters"] = run.hyperparameters.changed(changed)
    if run.buffer is not None:
        changes["buffer"] = SETTING["buffer"]
    return run.model_copy(update=changes)


def tables(rows: list[Row]) -> str:
    """Ours minus the published code's; each row of the ablation minus its method, by code."""
    runs: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        runs[row["method"], row["code"]].append(row)
    names = dict.fromkeys([*METHODS, *(row["method"] for row in rows)])
    compared = [
        {"Method": name} | _difference(runs[name, "published"], runs[name, "ours"])
        for name in names
    ]
    parts = [
        {"Row minus method": name, "Code": code}
        | _paired(runs[name.partition(".")[0], code], runs[name, code])
        for name, code in product(names, CODES)
        if "." in name
    ]
    found = [[row for row in each if "Runs" in row] for each in (compared, parts)]
    return "\n".join(markdown(rows) for rows in found if rows)


def _difference(first: list[Row], second: list[Row]) -> dict[str, str]:
    """How many runs there are, and the second's means minus the first's, with Welch's interval.

    Nothing where an interval takes more of them.
    """
    counts = [len(first), len(second)]
    if min(counts) < 2:
        return {}
    texts = {"Runs": ", ".join(map(str, dict.fromkeys(counts)))}
    for protocol in PROTOCOLS:
        theirs, ours = ([fmean(row[protocol]) for row in rows] for rows in (first, second))
        low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
        texts[PROTOCOL_TITLES[protocol]] = _text(fmean(ours) - fmean(theirs), low, high)
    return texts


def _paired(first: list[Row], second: list[Row]) -> dict[str, str]:
    """The same of one code, whose runs of a seed share it: of their differences, Student's."""
    ours, theirs = ({row["seed"]: row for row in rows} for rows in (second, first))
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        return {}
    texts = {"Runs": str(len(seeds))}
    for protocol in PROTOCOLS:
        pairs = [(fmean(ours[seed][protocol]), fmean(theirs[seed][protocol])) for seed in seeds]
        gain = of_arms([pd.Series([one - other for one, other in pairs])], "student")
        texts[PROTOCOL_TITLES[protocol]] = _text(gain.mean, gain.low, gain.high)
    return texts


def _text(mean: float, low: float, high: float) -> str:
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


def main(
    checkout: Annotated[Path, typer.Argument(help="A checkout of the published code.")],
    source: Annotated[str, typer.Option(help="A source of params.yaml.")],
    method: Annotated[
        list[str] | None,
        typer.Option(help="Or a row of the ablation: twf.cl. All methods it ships where none."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of each code and method.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Runs side by side, a thread each.")] = 1,
) -> None:
    """Train with both codes and compare final average accuracies."""
    params = reading.load(files.PARAMS)
    sizes = SETTING["train_per_class"], SETTING["test_per_class"]
    data = subset(store.load(files.data_file("cifar10")), *sizes)
    network = lookup("source", params.sources, source, str(files.PARAMS)).network
    weights = checkpoints.load(files.checkpoint_file(source), network).tensors
    setting = {"source": source} | SETTING
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    rows = [row for row in map(json.loads, lines) if row["setting"] == setting]
    done = {(row["code"], row["method"], row["seed"]) for row in rows}
    works: dict[str, Callable[[Run, Dataset, Weights], Row]]
    works = {"ours": ours, "published": partial(theirs, checkout.resolve())}
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting: dict[Future[Row], Row] = {}
        for seed, name, code in product(range(seeds), method or METHODS, works):
            if (code, name, seed) not in done:
                run = run_of(params, name, source).model_copy(update={"seed": seed})
                row = {"code": code, "method": name, "seed": seed}
                waiting[pool.submit(works[code], run, data, weights)] = row
        for finished in as_completed(waiting):
            if error := finished.exception():
                note(f"{waiting[finished]}: {error!r}")
                continue
            row = waiting[finished] | {"setting": setting} | finished.result()
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            rows.append(row)
    print(tables(rows))


if __name__ == "__main__":
    command(main)
