"""What the device can do at most, measured; and what a piece of work asks of it, counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import Effort, Row, interleaved
from twf.learning.precision import set_precision

SIDE = {"cpu": 2048, "cuda": 8192}  # of the matrices that are multiplied, and of those copied


def measure(precision: str, device: torch.device, effort: Effort) -> Row:
    """GFLOP/s of a matrix product in a precision, and GB/s of a copy (read and write counted)."""
    side = SIDE[device.type]
    precision = set_precision(precision, device)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    # random: a GPU multiplies constants faster, as they take less power
    a, b, c = (torch.rand(side, side, device=device, dtype=dtype) for _ in range(3))
    works = {"product": lambda: torch.mm(a, b, out=c), "copy": lambda: c.copy_(a)}
    times = {name: t.row() for name, t in interleaved(works, device, effort).items()}
    # the fastest: a ceiling is not lowered by what else the machine does
    return {
        "measurement": "ceiling",
        "precision": precision,
        "gflops": 2 * side**3 / times["product"]["fastest"] / 1e6,
        "gigabytes_per_second": 2 * a.nbytes / times["copy"]["fastest"] / 1e6,
    }


class _Counter(TorchDispatchMode):
    """Counts operations, and the bytes that each reads and writes; views and `empty` are free."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.operations = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        result = operation(*arguments, **(options or {}))
        aliases = [returned.alias_info for returned in operation._schema.returns]
        views = any(alias is not None and not alias.is_write for alias in aliases)
        if not views and operation._schema.name != "aten::empty":
            self.operations += 1
            leaves = tree_leaves((arguments, options, result))
            self.bytes += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        return result


def count(work: Callable[[], object]) -> Row:
    """The operations, the products' FLOPs, and the bytes that pass memory unfused."""
    with FlopCounterMode(display=False) as flops:
        work()
    with _Counter() as counter:
        work()
    return {
        "operations": counter.operations,
        "gigaflop": flops.get_total_flops() / 1e9,
        "gigabytes": counter.bytes / 1e9,
    }


def shares(needs: Row, milliseconds: float, ceiling: Row) -> Row:
    """Which part of the device's ceilings is reached by work that takes so long."""
    seconds = milliseconds / 1e3
    return needs | {
        "share_of_product": needs["gigaflop"] / seconds / ceiling["gflops"],
        "share_of_copy": needs["gigabytes"] / seconds / ceiling["gigabytes_per_second"],
    }
