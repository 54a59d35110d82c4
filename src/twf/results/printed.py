"""The paper's printed numbers, under the keys that a study's cells have."""

from typing import Any, NamedTuple

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

    @property
    def row(self) -> str:
        """Method, variant and what was probed in words, with the names of params.yaml."""
        probed = f" in {self.layer} after {self.tasks} tasks" if self.layer else ""
        return f"{self.method} {self.variant}".rstrip() + probed

    @property
    def place(self) -> str:
        """The rest in words."""
        buffer = f"buffer {self.buffer}" if self.buffer else "no buffer"
        return f"{self.benchmark} from {self.source}, {buffer}, {self.protocol}"


PLACE = list(CellKey._fields[:6])  # of a number in a table


def key_at(place: Any) -> CellKey:
    """The key of the number at a place, a row of the columns `PLACE`."""
    return CellKey(*place)


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
    """The paper's numbers in the order of their file: `PLACE`, `printed_faa` and `printed_ff`.

    In per cent, null where it prints none. The paper prints TwF on Split CUB-200 with buffer 400
    twice and differently, in Tables 3 and 4: the second has the variant `all`.
    """
    file = pd.read_csv(PRINTED)
    variants = {text: name for name, text in PRINTED_VARIANTS.items()}
    places = file["benchmark"].map(_BENCHMARKS)
    return pd.DataFrame(
        {
            "benchmark": places.str[0],
            "source": places.str[1],
            "method": file["method"],
            "variant": file["variant"].map(variants).fillna(""),
            "buffer": file["buffer_size"].fillna(0).astype(int),
            "protocol": file["protocol"],
            "printed_faa": file["final_average_accuracy"].astype(float),
            "printed_ff": file["final_forgetting"].astype(float),
        }
    )


def printed_keys() -> dict[CellKey, float]:
    """The paper's final average accuracy of each of its cells."""
    frame = printed()
    keys = map(key_at, frame[PLACE].itertuples(index=False))
    return dict(zip(keys, frame["printed_faa"], strict=True))
