"""What several test modules use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from twf import files
from twf.jobs import pretraining
from twf.jobs import run as jobs
from twf.study import Run, products
from twf.study.params import Params
from twf.study.products import Products

PROJECT = Path(__file__).resolve().parent.parent
CPU = torch.device("cpu")


# What `twf` says


class Said(NamedTuple):
    code: int
    out: str
    err: str


Twf = Callable[[str], Said]


def succeed(twf: Twf, *calls: str) -> None:
    for words in calls:
        said = twf(words)
        assert said.code == 0, (words, said)


def mistake(said: Said) -> str:
    """The message of a user's mistake, which is all that is said."""
    assert said.code == 2 and said.out == "", said
    assert said.err.startswith("error: ") and "Traceback" not in said.err
    return said.err


# Jobs by the plans that parameters stand for, as `twf` does them once the plans are written


def plan_of(params: Params, run: Run) -> products.Values:
    """The plan of a run, whatever record it has."""
    return Products(params).run_plan(run, {})


def execute(params: Params, run: Run, device: torch.device, **options: Any) -> None:
    jobs.execute(run, plan_of(params, run), params.tracking, device, **options)


def pretrain(params: Params, name: str, device: torch.device, *options: Any) -> None:
    pretraining.pretrain(name, Products(params).network(name).plan, device, *options)


def publish_nothing() -> None:
    """The paper's numbers, none of which are of the miniature."""
    files.PRINTED.parent.mkdir(exist_ok=True)
    header = "table,benchmark,method,variant,protocol,buffer_size,final_average_accuracy"
    files.PRINTED.write_text(f"{header},final_forgetting\n")


def split_pictures(classes: int) -> dict[str, np.ndarray]:
    """A miniature archive: 11 training and 4 test images of each class, uint8 `[N, 16, 16, 3]`.

    They are learnable and all different: a pattern per class, and noise.
    """
    patterns = np.random.default_rng(1000 + classes).integers(40, 216, (classes, 4, 4, 3))
    arrays = {}
    for seed, (split, per_class) in enumerate({"train": 11, "test": 4}.items()):
        labels = np.tile(np.arange(classes), per_class)
        noise = np.random.default_rng(seed).integers(-40, 40, (len(labels), 16, 16, 3))
        images = patterns[labels].repeat(4, axis=1).repeat(4, axis=2) + noise
        arrays |= {f"x_{split}": images.astype(np.uint8), f"y_{split}": labels}
    return arrays


def spy(patch: pytest.MonkeyPatch, owner: Any, name: str, tell: Callable[..., Any]) -> None:
    """From now on, `tell(result, *arguments)` at each call of a method of `owner`."""
    call = getattr(owner, name)

    def told(*arguments: Any, **named: Any) -> Any:
        made = call(*arguments, **named)
        tell(made, *arguments)
        return made

    patch.setattr(owner, name, told)


class Malicious:
    """A pickle of it calls `open(file, "w")`."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.file), "w")


# Keys that are none, for the environment of a test, and where they came to be

KEYS = {
    "WANDB_API_KEY": "fakewandb0123456789abcdef0123456789abcdef",
    "AWS_ACCESS_KEY_ID": "FAKEAWSID0123456789",
    "AWS_SECRET_ACCESS_KEY": "fakeaws/0123456789abcdef0123456789abcdef",
}


def has_key(text: str) -> bool:
    """Whether one of `KEYS` is in a text."""
    return any(key in text for key in KEYS.values())


def files_with_keys(folder: Path) -> list[Path]:
    """The files anywhere in a folder with one of `KEYS` in their content or name."""

    def content(path: Path) -> str:
        if path.suffix == ".parquet":  # whose columns may be compressed
            table = pq.read_table(path)
            return f"{table.schema.metadata}{table.to_pylist()}"
        return path.read_bytes().decode("latin-1")

    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in paths if has_key(str(path) + content(path))]
