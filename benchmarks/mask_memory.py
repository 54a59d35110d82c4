"""Memory and time of the gate masks in TwF's buffer: bytes, packed bits, lossless compression.

    python benchmarks/mask_memory.py demo split-digits.twf.50.s0 split-digits.twf.200.s0

trains the named runs of a study up to their last task's end, keeps the masks of their buffers, and
prints Markdown tables of what each way to store them takes, beside masks of random bits, which no
compressor can shorten. Needs what the runs need: data and checkpoints; `--pretraining-steps` does
without a checkpoint. Progress goes to standard error.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import torch
import torch.nn.functional as F
import typer
from torch import Tensor

from twf import files
from twf import params as parameters
from twf.data import store
from twf.data import tasks as task_splits
from twf.data.augmentation import Augment
from twf.errors import UserError
from twf.evaluation.accuracy import to_device
from twf.methods import make
from twf.methods.base import Batch, Task
from twf.methods.twf import Twf
from twf.models.resnet import ResNet
from twf.params import Params
from twf.progress import progress
from twf.replay.masks import MaskPacker
from twf.study import Run, expand
from twf.training import checkpoints, loop
from twf.training.checkpoints import Checkpoint
from twf.training.provenance import device_name
from twf.training.randomness import Generators, seeded
from twf.training.sgd import batches, cosine, sgd_step, shuffled

CPU = torch.device("cpu")
BATCH = 32  # images that are packed, or unpacked, at once when that is timed
REPEATS = 3  # of each measurement; the fastest counts

Code = Callable[[bytes], bytes]
COMPRESSORS: dict[str, tuple[Code, Code]] = {
    **{f"zlib {n}": (partial(zlib.compress, level=n), zlib.decompress) for n in (1, 6, 9)},
    "bz2": (bz2.compress, bz2.decompress),
    "lzma": (lzma.compress, lzma.decompress),
}


@dataclass(frozen=True)
class Masks:
    """The packed masks of a buffer, uint8 `[n, bytes]`, and what packed them."""

    title: str
    packed: Tensor
    packer: MaskPacker

    @property
    def units(self) -> int:
        """Gates of an image."""
        return sum(self.packer.units)


@dataclass(frozen=True)
class Storage:
    """A way to store masks: bytes of each image (or their mean), and seconds per image."""

    mean: float
    largest: int | None  # of an image; None where images are not stored apart
    write: float
    read: float


def learned_masks(run: Run, steps: int | None, checkpoint: Checkpoint) -> Masks:
    """The masks in a run's buffer after its last task, or after `steps` steps of each task.

    Without a limit this is the run's own training, draw by draw.
    """
    dataset = store.load(files.data_file(run.data))
    learner = loop.make_learner(run, dataset, None, checkpoint, CPU)
    method = make(run.method, learner, run.hyperparameters)
    if not isinstance(method, Twf) or not run.buffer:
        raise UserError(f"run {run.id} stores no masks; name runs of twf with a buffer")
    images, labels = to_device(dataset.train_images, CPU), dataset.train_labels
    trained = [p for module in method.modules() for p in module.parameters()]
    title = f"`{run.id}`" if steps is None else f"`{run.id}`, {steps} steps per task"
    with progress(run.id, run.tasks) as advance:
        for number, positions in enumerate(task_splits.split(labels, run.tasks, run.classes)):
            task = Task(number, images[positions], labels[positions])
            for module in method.modules():
                module.train()
            method.begin_task(task)
            order = learner.generators["order"]
            stream = _batches(len(task.images), method.batch_size, order, run.epochs)
            for epoch, index in islice(stream, steps):
                step = method.loss(Batch(task.images[index], task.labels[index], index))
                loss = torch.stack(list(step.terms.values())).sum()
                loss.backward()
                sgd_step(trained, method.learning_rate(epoch))
                assert step.store is not None
                method.reservoir.insert(**step.store)
            method.end_task(task)
            advance(1, f"loss {loss.item():.3f}")
    filled = int(method.reservoir.filled)
    return Masks(title, method.reservoir.rows["masks"][:filled], method.propagation.packer)


def _batches(
    count: int, size: int, order: torch.Generator, epochs: int
) -> Iterator[tuple[int, Tensor]]:
    """The epoch of each batch, and its positions."""
    for epoch in range(epochs):
        for index in batches(shuffled(count, order), size):
            yield epoch, index


def briefly_pretrained(params: Params, name: str, steps: int) -> Checkpoint:
    """A source's network after a few steps of its recipe, the cosine over these; random for 0."""
    source = params.sources[name]
    if source.data is None or source.pretraining is None:
        raise UserError(f"source {name} has no data; leave --pretraining-steps out for it")
    recipe = source.pretraining
    dataset = store.load(files.data_file(source.data))
    images, labels = to_device(dataset.train_images, CPU), dataset.train_labels
    augment = Augment(params.datasets[source.data].augmentation, CPU)
    generators = Generators(recipe.seed, CPU)
    with seeded(recipe.seed, "network"):
        network = ResNet(source.network, len(dataset.classes))
    optimizer = torch.optim.SGD(
        network.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay
    )
    with progress(f"pretrain {name}", steps) as advance:
        order = _batches(len(images), recipe.batch_size, generators["order"], recipe.epochs)
        for step, (_, index) in enumerate(islice(order, steps)):
            if recipe.schedule == "cosine":
                optimizer.param_groups[0]["lr"] = cosine(step, steps, recipe.lr, 0.0)
            inputs = augment(images[index], generators["augmentation"])
            loss = F.cross_entropy(network(inputs), labels[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            advance(1, f"loss {loss.item():.3f}")
    return Checkpoint(network.state_dict(), about={}, sha256="")


def random_masks(count: int, packer: MaskPacker) -> Masks:
    """Gates that are open with probability 1/2 each, whatever the others are."""
    generator = torch.Generator().manual_seed(0)
    bits = [torch.randint(0, 2, (count, *shape), generator=generator) for shape in packer.shapes]
    return Masks("random bits", packer.pack(bits), packer)


def measure(masks: Masks) -> dict[str, Storage]:
    """What each way to store `masks` takes; `packed bits` is the buffer's own.

    Compressors work on packed bits, so their times come on top of packing and unpacking.
    """
    some = masks.packed[:BATCH]
    gates, packer, n = masks.packer.unpack(some), masks.packer, len(some)
    as_bytes = [gate.to(torch.uint8) for gate in gates]
    found = {
        "one byte per gate": Storage(
            masks.units,
            masks.units,
            _seconds(lambda: [gate.to(torch.uint8) for gate in gates]) / n,
            _seconds(lambda: [gate.float() for gate in as_bytes]) / n,
        ),
        "packed bits": Storage(
            packer.bytes,
            packer.bytes,
            _seconds(lambda: packer.pack(gates)) / n,
            _seconds(lambda: packer.unpack(some)) / n,
        ),
    }
    rows = [row.numpy().tobytes() for row in masks.packed]
    for name, code in COMPRESSORS.items():
        found[f"{name}, per image"] = _compressed(rows, len(rows), *code)
    for name, code in COMPRESSORS.items():
        found[f"{name}, whole buffer"] = _compressed([b"".join(rows)], len(rows), *code)
    return found


def _compressed(parts: list[bytes], images: int, compress: Code, decompress: Code) -> Storage:
    """Compress each part by itself."""
    short = [compress(part) for part in parts]
    if [decompress(part) for part in short] != parts:
        raise RuntimeError("a compressor has lost something")
    return Storage(
        sum(map(len, short)) / images,
        max(map(len, short)) if len(parts) == images else None,
        _seconds(lambda: [compress(part) for part in parts]) / images,
        _seconds(lambda: [decompress(part) for part in short]) / images,
    )


def _seconds(work: Callable[[], object]) -> float:
    """The fastest of a few times."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def markdown(measured: list[tuple[Masks, dict[str, Storage]]]) -> str:
    """Three tables: the masks, memory as a share of packed bits, time as a multiple of packing's.

    A share in parentheses is the largest image's.
    """
    titles = [masks.title for masks, _ in measured]
    about = {
        "images": [f"{len(masks.packed):,}" for masks, _ in measured],
        "gates of an image": [f"{masks.units:,}" for masks, _ in measured],
        "open gates": [_percent(_open(masks)) for masks, _ in measured],
        "different masks": [f"{len(masks.packed.unique(dim=0)):,}" for masks, _ in measured],
        "packed, an image": [f"{masks.packer.bytes:,} B" for masks, _ in measured],
        "packed, the buffer": [f"{masks.packed.numel() / 2**20:,.3f} MiB" for masks, _ in measured],
        "packing an image": [f"{s['packed bits'].write * 1e6:,.0f} µs" for _, s in measured],
        "unpacking an image": [f"{s['packed bits'].read * 1e6:,.0f} µs" for _, s in measured],
    }
    memory: dict[str, list[str]] = {}
    times: dict[str, list[str]] = {}
    for masks, storages in measured:
        packed = storages["packed bits"]
        for name, storage in storages.items():
            largest = storage.largest
            note = "" if largest is None else f" ({_percent(largest / masks.packer.bytes)})"
            share = _percent(storage.mean / masks.packer.bytes)
            memory.setdefault(name, []).append(share + note)
            ratios = _times(storage.write / packed.write), _times(storage.read / packed.read)
            times.setdefault(name, []).append(" / ".join(ratios))
    return "\n\n".join(
        [
            _table("masks", titles, about),
            _table("memory, of packed bits", titles, memory),
            _table("time to write / read, times packing / unpacking", titles, times),
        ]
    )


def _open(masks: Masks) -> float:
    """The share of gates that are open."""
    opened = sum(
        float(gate.sum())
        for part in masks.packed.split(BATCH)
        for gate in masks.packer.unpack(part)
    )
    return opened / (masks.units * len(masks.packed))


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _table(corner: str, titles: list[str], rows: dict[str, list[str]]) -> str:
    lines = [[corner, *titles], [":---", *["---:"] * len(titles)]]
    lines += [[name, *cells] for name, cells in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(
    study: Annotated[str, typer.Argument(help="A study of params.yaml.")] = "demo",
    runs: Annotated[list[str] | None, typer.Argument(help="Its runs of twf.")] = None,
    project: Annotated[Path, typer.Option(help="With params.yaml, data, checkpoints.")] = Path(),
    steps: Annotated[int | None, typer.Option(min=1, help="Of each task; all if absent.")] = None,
    pretraining_steps: Annotated[
        int | None, typer.Option(min=0, help="Pretrain so long, in place of the checkpoint.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
) -> None:
    """Measure the masks of some runs' buffers; the demo's two by default."""
    torch.set_num_threads(threads)
    with contextlib.chdir(project):
        params = parameters.load(files.PARAMS)
        planned = expand(params, study).runs
        starts: dict[str, Checkpoint] = {}
        measured = []
        for name in runs or ["split-digits.twf.50.s0", "split-digits.twf.200.s0"]:
            if name not in planned:
                raise UserError(f"study {study} has no run {name!r}; `twf plan {study}` lists them")
            run = planned[name]
            if run.source not in starts:
                starts[run.source] = (
                    checkpoints.load(files.checkpoint_file(run.source), run.network)
                    if pretraining_steps is None
                    else briefly_pretrained(params, run.source, pretraining_steps)
                )
            masks = learned_masks(run, steps, starts[run.source])
            measured.append((masks, measure(masks)))
        last, _ = measured[-1]
        chance = random_masks(len(last.packed), last.packer)
        measured.append((chance, measure(chance)))
    print(f"On {device_name(CPU)}:\n\n{markdown(measured)}")


if __name__ == "__main__":
    try:
        typer.run(main)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
