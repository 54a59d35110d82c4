"""Ways to store binary masks, what they take of memory and time, and tables of it."""

from __future__ import annotations

import bz2
import lzma
import math
import time
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from twf.learning.replay.masks import MaskPacker
from twf.results.show import TextRow, markdown_table

BATCH = 32  # images that are packed, or unpacked, at once when that is timed
ROUNDS = 5  # in which everything is timed in turn; the fastest time counts
SLICE = 0.02  # seconds of a round for each thing that is timed, at least

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
    """A way to store masks: what it takes of memory, and how it is written and read."""

    mean: float  # bytes of an image
    largest: int | None  # bytes of an image; None where images are not stored apart
    images: int  # that are written, or read, at once
    write: Callable[[], object]
    read: Callable[[], object]


def random_masks(count: int, packer: MaskPacker) -> Masks:
    """Gates that are open with probability 1/2 each, whatever the others are."""
    generator = torch.Generator().manual_seed(0)
    bits = [torch.randint(0, 2, (count, *shape), generator=generator) for shape in packer.shapes]
    return Masks("random bits", packer.pack(bits), packer)


def storages(masks: Masks) -> dict[str, Storage]:
    """The ways to store `masks`; `packed bits` is the buffer's own.

    Compressors work on packed bits, so their times come on top of packing and unpacking.
    """
    some, packer = masks.packed[:BATCH], masks.packer
    gates = packer.unpack(some)
    as_bytes = [gate.to(torch.uint8) for gate in gates]
    found = {
        "one byte per gate": Storage(
            masks.units,
            masks.units,
            len(some),
            lambda: [gate.to(torch.uint8) for gate in gates],
            lambda: [gate.float() for gate in as_bytes],
        ),
        "packed bits": Storage(
            packer.bytes,
            packer.bytes,
            len(some),
            lambda: packer.pack(gates),
            lambda: packer.unpack(some),
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
        images,
        lambda: [compress(part) for part in parts],
        lambda: [decompress(part) for part in short],
    )


def seconds(ways: dict[str, Storage]) -> dict[str, tuple[float, float]]:
    """The processor's seconds per image, to write and to read, by each way.

    A busy machine is slower at times. Rounds through all ways give each its quiet moments.
    """
    fastest = dict.fromkeys(ways, (math.inf, math.inf))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            write, read = fastest[name]
            fastest[name] = min(write, _fastest(way.write)), min(read, _fastest(way.read))
    return {
        name: (w / ways[name].images, r / ways[name].images) for name, (w, r) in fastest.items()
    }


def _fastest(work: Callable[[], object]) -> float:
    """The fastest of as many times as a slice has room for."""
    times: list[float] = []
    while not times or sum(times) < SLICE:
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def markdown(measured: list[Masks]) -> str:
    """Three tables: the masks, memory as a share of packed bits, time as a multiple of packing's.

    A share in parentheses is the largest image's.
    """
    about: dict[str, TextRow] = defaultdict(dict)
    memory: dict[str, TextRow] = defaultdict(dict)
    times: dict[str, TextRow] = defaultdict(dict)
    for masks in measured:
        ways = storages(masks)
        spent = seconds(ways)
        packing, unpacking = spent["packed bits"]
        facts = {
            "images": f"{len(masks.packed):,}",
            "gates of an image": f"{masks.units:,}",
            "open gates": _percent(_open(masks)),
            "different masks": f"{len(masks.packed.unique(dim=0)):,}",
            "packed, an image": f"{masks.packer.bytes:,} B",
            "packed, the buffer": f"{masks.packed.numel() / 2**20:,.3f} MiB",
            "packing an image": f"{packing * 1e6:,.0f} µs",
            "unpacking an image": f"{unpacking * 1e6:,.0f} µs",
        }
        for name, fact in facts.items():
            about[name][masks.title] = fact
        for name, way in ways.items():
            share = _percent(way.mean / masks.packer.bytes)
            if way.largest is not None:
                share += f" ({_percent(way.largest / masks.packer.bytes)})"
            memory[name][masks.title] = share
            write, read = spent[name]
            ratios = _times(write / packing), _times(read / unpacking)
            times[name][masks.title] = " / ".join(ratios)
    tables = {
        "masks": about,
        "memory, of packed bits": memory,
        "time to write / read, times packing / unpacking": times,
    }
    return "\n\n".join(
        markdown_table([{corner: name} | cells for name, cells in rows.items()])
        for corner, rows in tables.items()
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
