"""What the paper claims of its cells. `claim_evaluation` holds them against numbers.

A claim says that some cells lie above others: a small function finds these contests in the cells
that there are, of the paper or of a study. The statements that follow Table 4 and the figures are
those of the paper's section on ablations; 4.81 and 2.77 points are from its section on results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from twf.results.published import CellKey
from twf.study.params import Protocol

Cells = Collection[CellKey]


@dataclass(frozen=True)
class Contest:
    """A cell that should lie above each of its rivals."""

    cell: CellKey
    rivals: tuple[CellKey, ...]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper. `contests` finds it in the cells that there are."""

    name: str
    statement: str
    contests: Callable[[Cells], list[Contest]]
    every: bool = True  # it is of each contest, not of their mean


REHEARSAL = ("er", "co2l", "icarl", "derpp", "er-ace")  # those in Tables 1-3 beside TwF
CONTROL = "share-0-wide"  # DER++ with the source's classes in its head and none of its images


def twf_above(cells: Cells, protocol: Protocol, *methods: str) -> list[Contest]:
    """TwF against these methods, wherever the whole main comparison is."""
    return [
        Contest(key, tuple(key._replace(method=method) for method in methods))
        for key in cells
        if (key.method, key.variant, key.protocol) == ("twf", None, protocol)
        and all(key._replace(method=method) in cells for method in REHEARSAL)
    ]


def variant_above(cells: Cells, *pairs: tuple[str, str]) -> list[Contest]:
    """One variant of TwF's loss terms against another, for each pair and place."""
    return [
        Contest(key, (key._replace(variant=rival),))
        for ours, rival in pairs
        for key in cells
        if (key.method, key.variant) == ("twf", ours) and key._replace(variant=rival) in cells
    ]


def without_buffer(cells: Cells) -> list[Contest]:
    """FP and AUX without a buffer against oEWC."""
    return [
        Contest(key, (rival,))
        for key in cells
        if (key.method, key.variant, key.buffer) == ("twf", "fp-aux", None)
        and (rival := key._replace(method="oewc", variant=None)) in cells
    ]


def in_each_variant(cells: Cells, place: CellKey) -> list[CellKey]:
    """A method's variants at a place; the method as it is where it has none."""
    found = [key for key in cells if key._replace(variant=None) == place]
    return [key for key in found if key.variant is not None] or found


def method_above(cells: Cells, method: str, rival: str) -> list[Contest]:
    """A method, in each of its variants, against another without any."""
    return [
        Contest(key, (other,))
        for other in cells
        if (other.method, other.variant) == (rival, None)
        for key in in_each_variant(cells, other._replace(method=method))
    ]


def twf_above_variants(cells: Cells, method: str) -> list[Contest]:
    """TwF against all variants of a method."""
    return [
        Contest(key, tuple(rivals))
        for key in cells
        if (key.method, key.variant) == ("twf", None)
        and (rivals := in_each_variant(cells, key._replace(method=method)))
    ]


def without_control(cells: Cells) -> list[CellKey]:
    """The cells but for the control of the pretraining images, of which the paper says nothing."""
    return [key for key in cells if key.variant != CONTROL]


CLAIMS = (
    Claim(
        "first-class-il",
        "TwF is first in each Class-IL cell, among the methods with a buffer",
        lambda cells: twf_above(cells, "class-il", *REHEARSAL),
    ),
    Claim(
        "first-task-il",
        "TwF is first in each Task-IL cell, among the methods with a buffer",
        lambda cells: twf_above(cells, "task-il", *REHEARSAL),
    ),
    Claim(
        "gain-class-il",
        "TwF gains over DER++ in Class-IL on average (the paper: 4.81 points)",
        lambda cells: twf_above(cells, "class-il", "derpp"),
        every=False,
    ),
    Claim(
        "gain-task-il",
        "TwF gains over ER-ACE in Task-IL on average (the paper: 2.77 points)",
        lambda cells: twf_above(cells, "task-il", "er-ace"),
        every=False,
    ),
    Claim(
        "gain-second-class-il",
        "TwF gains over the second best of each Class-IL cell on average",
        lambda cells: twf_above(cells, "class-il", *REHEARSAL),
        every=False,
    ),
    Claim(
        "gain-second-task-il",
        "TwF gains over the second best of each Task-IL cell on average",
        lambda cells: twf_above(cells, "task-il", *REHEARSAL),
        every=False,
    ),
    Claim(
        "cl-helps",
        "L_CL on top of L_FP and L_AUX raises accuracy in each cell",
        lambda cells: variant_above(cells, ("all", "fp-aux")),
    ),
    Claim(
        "fp-helps",
        "L_FP on top of L_CL raises accuracy in each cell",
        lambda cells: variant_above(cells, ("cl-fp", "cl")),
    ),
    Claim(
        "aux-helps",
        "L_AUX on top of L_FP raises accuracy in each cell, with and without L_CL",
        lambda cells: variant_above(cells, ("all", "cl-fp"), ("fp-aux", "fp")),
    ),
    Claim(
        "fp-without-buffer",
        "L_FP and L_AUX without a buffer are better than oEWC on each benchmark",
        without_buffer,
    ),
    Claim(
        "anchor-helps",
        "An EWC anchor to the pretrained weights raises DER++'s accuracy in each cell",
        lambda cells: method_above(cells, "derpp-ewc", "derpp"),
    ),
    Claim(
        "anchor-below-twf",
        "TwF is better than DER++ with an EWC anchor in each cell",
        lambda cells: twf_above_variants(cells, "derpp-ewc"),
    ),
    Claim(
        "pretraining-images-help",
        "Pretraining images in the buffer raise DER++'s accuracy, in the mean over their shares",
        lambda cells: method_above(without_control(cells), "derpp-pretraining", "derpp"),
        every=False,
    ),
    Claim(
        "pretraining-images-below-twf",
        "TwF is better than DER++ with any share of pretraining images in its buffer",
        lambda cells: twf_above_variants(without_control(cells), "derpp-pretraining"),
    ),
)
