"""A buffer filled by reservoir sampling, all of it on the device, with shapes that never change."""

import torch
from torch import Tensor

from twf.learning.randomness import Random

Rows = dict[str, Tensor]


class ReservoirBuffer:
    """At most `size` examples, each kept with equal probability out of all that were offered.

    Beside them, `pinned` examples may be set once that stay, and are replayed with the others.

    An example is a row of several named tensors (images, labels, ...), allocated when the first
    batch is offered. Vitter's algorithm R: the n-th example offered (from 0) takes slot n while
    slots are free, and later slot r, drawn uniformly from 0..n, if r < size.
    """

    def __init__(self, size: int, generator: Random) -> None:
        self.size = size
        self.pinned: Rows = {}
        self.generator = generator
        self.seen = torch.zeros((), dtype=torch.int64, device=generator.device)
        self.rows: Rows = {}  # [size + pinned + 1, ...]; the last row takes what is not kept

    @property
    def empty(self) -> bool:
        """True until something was kept."""
        return not self.rows

    @property
    def filled(self) -> Tensor:
        """How many slots hold an example (int64 scalar, on the device)."""
        return self.seen.clamp(max=self.size)

    def insert(self, **batch: Tensor) -> None:
        """Offer a batch, in the order of its rows; `[N, ...]` each. Without slots, forget it."""
        if self.size == 0:
            return
        if self.empty:
            self.rows = {
                name: torch.cat(
                    [
                        values.new_zeros((self.size, *values.shape[1:])),
                        self.pinned.get(name, values[:0]),
                        torch.zeros_like(values[:1]),
                    ]
                )
                for name, values in batch.items()
            }
        slots = self.slots(len(next(iter(batch.values()))))
        for name, values in batch.items():
            rows = self.rows[name]
            rows[slots] = values.to(rows.dtype)  # pinned rows may be more precise

    def slots(self, count: int) -> Tensor:
        """Draw the slot of each of the next `count` examples; -1 for those not kept.

        Where two examples of the batch draw one slot, the later one has it, as if they had been
        inserted one after the other.
        """
        device = self.generator.device
        order = torch.arange(count, device=device)
        position = self.seen + order
        uniform = self.generator.uniform(count, dtype=torch.float64)
        drawn = (uniform * (position + 1)).long()
        slots = torch.where(position < self.size, position, drawn.clamp(max=self.size))
        self.seen += count
        last = torch.full((self.size + 1,), -1, device=device)
        last = last.scatter_reduce(0, slots, order, "amax")
        last[self.size].fill_(-1)  # not by `= -1`, which sends a number to the device
        return torch.where(last[slots] == order, slots, -1)

    def draw(self, count: int) -> Rows:
        """Draw `count` examples without repetition (all of them where the buffer has fewer slots).

        Needs at least that many filled slots, which holds from the first batch on when batches are
        no smaller than `count`.
        """
        slots = len(next(iter(self.rows.values()))) - 1
        count = min(count, slots)
        priority = self.generator.uniform(slots)
        order = torch.arange(slots, device=priority.device)
        free = (order >= self.filled) & (order < self.size)
        chosen = priority.masked_fill(free, 2.0).topk(count, largest=False).indices
        return {name: values[chosen] for name, values in self.rows.items()}
