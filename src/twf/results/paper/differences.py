"""What the paper's claims compare: differences between cells, found among those that there are.

The keys are those of the paper's numbers, or of a study's cells. A finder gives no difference where
a cell that it needs is not among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from twf.results.printed import CellKey
from twf.results.record import LAYERS
from twf.study.params import Protocol


class ProbeKey(NamedTuple):
    """What a number of a probed cell is of: `cka` from 0 to 1, `nearest_neighbours` in per cent."""

    cell: CellKey
    quantity: str  # one of `record.PROBED`
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


def above(keys: Keys, cells: Iterable[Key], *rivals: Mapping[str, Any]) -> list[Difference]:
    """Each of some cells over those that differ from it as a rival does, where there are such."""
    return [
        over(key, below)
        for key in cells
        for rival in rivals
        if (below := key._replace(**rival)) in keys
    ]


def cells_of(
    keys: Keys, method: str, variant: str = "", protocol: Protocol | None = None
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
    return above(keys, main(keys, method, protocol), *({"method": rival} for rival in rivals))


def above_without_buffer(
    keys: Keys, protocol: Protocol | None, methods: Sequence[str], rivals: Sequence[str]
) -> list[Difference]:
    """Each of some methods, with whatever buffer, over each of some others that have none."""
    without = [{"method": rival, "buffer": 0} for rival in rivals]
    cells = (key for method in methods for key in cells_of(keys, method, protocol=protocol))
    return above(keys, cells, *without)


def propagation_without_buffer(keys: Keys, rival: str) -> list[Difference]:
    """TwF's L_FP and L_AUX without a buffer over a method that has none."""
    cells = [key for key in cells_of(keys, "twf", "fp-aux") if not key.buffer]
    return above(keys, cells, {"method": rival, "variant": ""})


def smallest_and_largest(
    keys: Keys, method: str, protocol: Protocol | None = None
) -> list[tuple[CellKey, CellKey]]:
    """A method's cells with the smallest and the largest buffer, where there are several."""
    found: dict[CellKey, list[CellKey]] = {}
    for key in sorted(main(keys, method, protocol), key=lambda key: key.buffer):
        found.setdefault(key._replace(buffer=0), []).append(key)
    return [(cells[0], cells[-1]) for cells in found.values() if len(cells) > 1]


def gains_with_small_buffers(
    keys: Keys, method: str, rivals: Mapping[Protocol, str]
) -> list[Difference]:
    """A method's gain with the smallest buffer over that with the largest, over a rival.

    Which rival, the protocol says.
    """
    return [
        gain_over(*(over(key, key._replace(method=rivals[key.protocol])) for key in pair))
        for pair in smallest_and_largest(keys, method)
    ]


def with_large_buffers(keys: Keys, protocol: Protocol, method: str, rival: str) -> list[Difference]:
    """A method over another with the largest buffer of each benchmark."""
    pairs = smallest_and_largest(keys, method, protocol)
    return above(keys, (large for _, large in pairs), {"method": rival})


def variant_above(keys: Keys, method: str, *pairs: tuple[str, str]) -> list[Difference]:
    """One variant of a method over another, for each pair and place."""
    return [
        difference
        for variant, rival in pairs
        for difference in above(keys, cells_of(keys, method, variant), {"variant": rival})
    ]


def in_each_variant(keys: Keys, place: CellKey) -> list[CellKey]:
    """A method's variants at a place but for `CONTROL`; the method as it is where it has none."""
    cells = (key for key in keys if isinstance(key, CellKey) and key.variant != CONTROL)
    found = [key for key in cells if key._replace(variant="") == place]
    return [key for key in found if key.variant] or found


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
    in_both = above(keys, cells_of(keys, "derpp-ewc"), {"method": "derpp"})
    gains = {gain.cell: gain for gain in in_both}
    return [
        gain_over(gain, gains[other])
        for cell, gain in gains.items()
        if cell.protocol == "task-il" and (other := cell._replace(protocol="class-il")) in gains
    ]


def from_dissimilar_source(keys: Keys, method: str, *rivals: str) -> list[Difference]:
    """A method over each of some others, pretrained on a source unlike the benchmark."""
    cells = [key for key in cells_of(keys, method) if key.source in DISSIMILAR]
    return above(keys, cells, *({"method": rival} for rival in rivals))


def probed(keys: Keys, quantity: str) -> list[list[ProbeKey]]:
    """What was probed of ER's runs from pretraining: of each layer, in the order of tasks."""
    found: dict[tuple[CellKey, str], list[ProbeKey]] = {}
    for key in keys:
        if not isinstance(key, ProbeKey) or key.quantity != quantity:
            continue
        if (key.cell.method, key.cell.variant) == ("er", "pretrained"):
            found.setdefault((key.cell, key.layer), []).append(key)
    return [sorted(of_layer, key=lambda key: key.tasks) for of_layer in found.values()]


def closer_from_pretraining(keys: Keys) -> list[Difference]:
    """The CKA of each layer from pretraining over that from scratch, after each task."""
    return [
        over(key, below)
        for of_layer in probed(keys, "cka")
        for key in of_layer[1:]
        if (below := key._replace(cell=key.cell._replace(variant="scratch"))) in keys
    ]


def last_layer_changes_most(keys: Keys) -> list[Difference]:
    """From pretraining, the CKA of each other layer over that of the last one, after each task."""
    others = (
        key for of_layer in probed(keys, "cka") for key in of_layer[1:] if key.layer != LAYERS[-1]
    )
    return above(keys, others, {"layer": LAYERS[-1]})


def source_is_forgotten(keys: Keys) -> list[Difference]:
    """The accuracy on the source before training over that after the first task, and that over the
    accuracy after the last.
    """
    return [
        over(before, after)
        for of_layer in probed(keys, "nearest_neighbours")
        for before, after in pairwise([of_layer[0], of_layer[1], of_layer[-1]])
    ]
