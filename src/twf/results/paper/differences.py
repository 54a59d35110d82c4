"""What the paper's claims compare: differences between cells, found among those that there are.

The keys are those of the paper's numbers, or of a study's cells. A finder gives no difference where
a cell that it needs is not among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from twf.results.published import CellKey
from twf.results.record import LAYERS
from twf.study.params import Protocol

Quantity = Literal["cka", "nearest_neighbours"]


class ProbeKey(NamedTuple):
    """What a number of a probed cell is of: `cka` from 0 to 1, `nearest_neighbours` in per cent."""

    cell: CellKey
    quantity: Quantity
    layer: str  # one of `record.LAYERS`
    tasks: int  # how many have been trained, 0 before the first

    @property
    def row(self) -> str:
        """All but the cell's place in words."""
        return f"{self.cell.row} in {self.layer} after {self.tasks} tasks"


Key = CellKey | ProbeKey
Keys = Collection[Key]


class Difference(NamedTuple):
    """The sum of some cells' values minus that of as many others."""

    above: tuple[Key, ...]
    below: tuple[Key, ...]

    @property
    def cell(self) -> CellKey:
        """Where it is taken: the first cell above."""
        key = self.above[0]
        return key if isinstance(key, CellKey) else key.cell

    def __str__(self) -> str:
        """In words, with the first cell's place."""
        above, below = (" and ".join(key.row for key in keys) for keys in self)
        return f"{above} over {below}, {self.cell.place}"


def in_words(group: Sequence[Difference]) -> str:
    """A mean of differences, by the first of them."""
    more = f", and {len(group) - 1} more on average" if len(group) > 1 else ""
    return f"{group[0]}{more}"


REHEARSAL = ("er", "co2l", "icarl", "derpp", "er-ace")  # those in Tables 1-3 beside TwF
CONTROL = "share-0-wide"  # DER++ with the source's classes in its head and none of its images
DISSIMILAR = ("svhn", "textures")  # sources unlike the benchmark: Table 5's, and the demo's


def over(above: Key, below: Key) -> Difference:
    """One cell over another."""
    return Difference((above,), (below,))


def gain_over(gain: Difference, other: Difference) -> Difference:
    """One difference over another."""
    return Difference(gain.above + other.below, gain.below + other.above)


def on(differences: list[Difference], *benchmarks: str) -> list[Difference]:
    """Those of some benchmarks."""
    return [difference for difference in differences if difference.cell.benchmark in benchmarks]


def cells_of(
    keys: Keys, method: str, variant: str | None = None, protocol: Protocol | None = None
) -> Iterator[CellKey]:
    """The cells of a method, or of its variant, in one protocol or in both."""
    for key in keys:
        if not isinstance(key, CellKey) or protocol not in (None, key.protocol):
            continue
        if (key.method, key.variant) == (method, variant):
            yield key


def main(keys: Keys, method: str, protocol: Protocol | None = None) -> list[CellKey]:
    """The cells of a method with a buffer, wherever all of the main comparison's are."""
    return [
        key
        for key in cells_of(keys, method, protocol=protocol)
        if all(key._replace(method=name) in keys for name in (*REHEARSAL, "twf"))
    ]


def method_above(
    keys: Keys, protocol: Protocol | None, method: str, *rivals: str
) -> list[Difference]:
    """A method with a buffer over each of some others, in the main comparison."""
    return [
        over(key, key._replace(method=rival))
        for key in main(keys, method, protocol)
        for rival in rivals
    ]


def above_without_buffer(
    keys: Keys, protocol: Protocol | None, method: str, *rivals: str
) -> list[Difference]:
    """A method, with whatever buffer, over each of some others that have none."""
    return [
        over(key, below)
        for key in cells_of(keys, method, protocol=protocol)
        for rival in rivals
        if (below := key._replace(method=rival, buffer=None)) in keys
    ]


def propagation_without_buffer(keys: Keys, rival: str) -> list[Difference]:
    """TwF's L_FP and L_AUX without a buffer over a method that has none."""
    return [
        over(key, below)
        for key in cells_of(keys, "twf", "fp-aux")
        if key.buffer is None and (below := key._replace(method=rival, variant=None)) in keys
    ]


def smallest_and_largest(keys: Keys, method: str) -> list[tuple[CellKey, CellKey]]:
    """A method's cells with the smallest and the largest buffer, where there are several."""
    found: dict[CellKey, list[CellKey]] = {}
    for key in sorted(main(keys, method), key=lambda key: key.buffer or 0):
        found.setdefault(key._replace(buffer=None), []).append(key)
    return [(cells[0], cells[-1]) for cells in found.values() if len(cells) > 1]


def gains_with_small_buffers(keys: Keys) -> list[Difference]:
    """TwF's gain with the smallest buffer over that with the largest, over the paper's second best.

    Which is DER++ in Class-IL and ER-ACE in Task-IL, as the paper names them.
    """

    def gain(key: CellKey) -> Difference:
        second = "derpp" if key.protocol == "class-il" else "er-ace"
        return over(key, key._replace(method=second))

    return [
        gain_over(gain(small), gain(large)) for small, large in smallest_and_largest(keys, "twf")
    ]


def losses_with_small_buffers(keys: Keys, rival: str, method: str) -> list[Difference]:
    """What a rival loses from the largest buffer to the smallest, over what a method loses."""
    return [
        gain_over(
            over(large._replace(method=rival), small._replace(method=rival)), over(large, small)
        )
        for small, large in smallest_and_largest(keys, method)
    ]


def with_large_buffers(keys: Keys, protocol: Protocol, method: str, rival: str) -> list[Difference]:
    """A method over another with the largest buffer of each benchmark."""
    return [
        over(large, large._replace(method=rival))
        for _, large in smallest_and_largest(keys, method)
        if large.protocol == protocol
    ]


def variant_above(keys: Keys, method: str, *pairs: tuple[str, str]) -> list[Difference]:
    """One variant of a method over another, for each pair and place."""
    return [
        over(key, below)
        for variant, rival in pairs
        for key in cells_of(keys, method, variant)
        if (below := key._replace(variant=rival)) in keys
    ]


def without_control(keys: Keys) -> list[Key]:
    """The keys but for the control of the pretraining images, of which the paper says nothing."""
    return [key for key in keys if not (isinstance(key, CellKey) and key.variant == CONTROL)]


def in_each_variant(keys: Keys, place: CellKey) -> list[CellKey]:
    """A method's variants at a place; the method as it is where it has none."""
    cells = (key for key in keys if isinstance(key, CellKey))
    found = [key for key in cells if key._replace(variant=None) == place]
    return [key for key in found if key.variant is not None] or found


def variants_above(keys: Keys, method: str, rival: str) -> list[Difference]:
    """A method, in each of its variants, over another without any."""
    return [
        over(key, below)
        for below in cells_of(keys, rival)
        for key in in_each_variant(keys, below._replace(method=method))
    ]


def above_variants(keys: Keys, method: str, rival: str) -> list[Difference]:
    """A method over all variants of another."""
    return [
        over(key, below)
        for key in cells_of(keys, method)
        for below in in_each_variant(keys, key._replace(method=rival))
    ]


def anchor_in_task_il(keys: Keys) -> list[Difference]:
    """What the anchor gains in Task-IL over what it gains in Class-IL."""
    return [
        gain_over(over(key, derpp), over(class_il, class_il._replace(method="derpp")))
        for key in cells_of(keys, "derpp-ewc", protocol="task-il")
        if (derpp := key._replace(method="derpp")) in keys
        and (class_il := key._replace(protocol="class-il")) in keys
        and class_il._replace(method="derpp") in keys
    ]


def from_dissimilar_source(keys: Keys, method: str, *rivals: str) -> list[Difference]:
    """A method over each of some others, pretrained on a source unlike the benchmark."""
    return [
        over(key, below)
        for key in cells_of(keys, method)
        for rival in rivals
        if key.source in DISSIMILAR and (below := key._replace(method=rival)) in keys
    ]


def probed(keys: Keys, quantity: Quantity) -> list[list[ProbeKey]]:
    """What was probed of ER's runs from pretraining: of each layer, in the order of tasks."""
    found: dict[tuple[CellKey, str], list[ProbeKey]] = {}
    for key in keys:
        if not isinstance(key, ProbeKey) or key.quantity != quantity:
            continue
        if (key.cell.method, key.cell.variant) == ("er", "pretrained"):
            found.setdefault((key.cell, key.layer), []).append(key)
    return [sorted(of_layer, key=lambda key: key.tasks) for of_layer in found.values()]


def closer_from_pretraining(keys: Keys) -> list[list[Difference]]:
    """In each layer, the CKA from pretraining over that from scratch after each task."""
    return [
        [
            over(key, below)
            for key in of_layer[1:]
            if (below := key._replace(cell=key.cell._replace(variant="scratch"))) in keys
        ]
        for of_layer in probed(keys, "cka")
    ]


def last_layer_changes_most(keys: Keys) -> list[list[Difference]]:
    """From pretraining, the CKA of each other layer over that of the last one after each task."""
    return [
        [over(key, key._replace(layer=LAYERS[-1])) for key in of_layer[1:]]
        for of_layer in probed(keys, "cka")
        if of_layer[0].layer != LAYERS[-1]
    ]


def source_is_forgotten(keys: Keys) -> list[Difference]:
    """The accuracy on the source before training over that after the first task, and that over the
    accuracy after the last.
    """
    return [
        over(before, after)
        for of_layer in probed(keys, "nearest_neighbours")
        for before, after in pairwise([of_layer[0], of_layer[1], of_layer[-1]])
    ]
