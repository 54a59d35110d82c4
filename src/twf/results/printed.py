"""The paper's printed numbers, under the keys that a study's cells have."""

from typing import NamedTuple

import pandas as pd

from twf.files import PRINTED
from twf.study.params import Protocol


class CellKey(NamedTuple):
    """What a number is of. `variant` is an experiment's, empty for the method as it is.

    `source` is the paper's also where a study takes a smaller one in its place; `buffer` is 0
    without one. `quantity` is final average accuracy, or of a `layer` after so many `tasks`, 0
    before the first and -1 after the last: one of `record.PROBED`, or what was `learned` then.
    """

    benchmark: str
    source: str
    method: str
    variant: str
    buffer: int
    protocol: Protocol
    quantity: str = "faa"
    layer: str = ""
    tasks: int = 0


PLACE = list(CellKey._fields[:6])  # of a number in a table

# What Table 4's rows are called in the paper's numbers, by the names of our variants.
PRINTED_VARIANTS = {
    "all": "cl=on fp=on aux=on",
    "cl": "cl=on fp=off aux=off",
    "cl-fp": "cl=on fp=on aux=off",
    "fp": "cl=off fp=on aux=off",
    "fp-aux": "cl=off fp=on aux=on",
}

# A number of the paper is of one pretraining; another source's cell has none to stand beside.
_BENCHMARKS = {
    "split-cifar10": ("split-cifar10", "cifar100"),
    "split-cifar100": ("split-cifar100", "tiny-imagenet"),
    "split-cub200": ("split-cub200", "imagenet"),
    "split-cifar100-from-svhn": ("split-cifar100", "svhn"),
}


def printed() -> pd.DataFrame:
    """The paper's numbers by `PLACE`, in the order of their file: `faa` and `ff`.

    In per cent, null where it prints none. The paper prints TwF on Split CUB-200 with buffer 400
    twice and differently, in Tables 3 and 4: the second has the variant `all`.
    """
    file = pd.read_csv(PRINTED)
    file["buffer"] = file["buffer_size"].fillna(0).astype(int)
    both = file["benchmark"].map(_BENCHMARKS)
    file["benchmark"], file["source"] = both.str[0], both.str[1]
    variants = {text: name for name, text in PRINTED_VARIANTS.items()}
    file["variant"] = file["variant"].map(variants).fillna("")
    names = {"final_average_accuracy": "faa", "final_forgetting": "ff"}
    return file.rename(columns=names).set_index(PLACE)[list(names.values())].astype(float)


def printed_keys() -> dict[CellKey, float]:
    """The paper's final average accuracy of each of its cells."""
    return {CellKey(*at): faa for at, faa in printed()["faa"].items()}  # type: ignore[misc]
