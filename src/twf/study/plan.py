"""What a study stands for: its runs, tables and searches, which `twf.study.expansion` makes."""

import hashlib
import json
from typing import Any

from pydantic import SerializeAsAny, ValidationInfo, field_validator

from twf.errors import lookup
from twf.study.methods import METHODS
from twf.study.params import Augmentation, LrDecay, Network, Params, Precision, Protocol
from twf.study.types import Fidelity, Hyperparameters, Strict


class Run(Strict):
    """One continual-learning run: all that `params.yaml` says of it."""

    id: str
    study: str
    benchmark: str
    data: str
    classes: int
    tasks: int
    source: str
    network: Network
    augmentation: Augmentation
    method: str
    buffer: int | None
    pretrained: bool
    probes: bool = False
    source_data: str | None = None  # where the run needs the source's images too
    source_augmentation: Augmentation | None = None
    fidelity: dict[str, Fidelity]  # of the switches that the method's code asks for
    hyperparameters: SerializeAsAny[Hyperparameters]
    epochs: int
    batch_size: int
    lr_decay: LrDecay | None
    precision: Precision
    held_out: float | None = None  # share of the training set to evaluate on, not the test set
    seed: int

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _of_its_method(cls, values: Any, others: ValidationInfo) -> Any:
        """Of plain values, as a record has them: the method says what they are."""
        model = METHODS[others.data["method"]].hyperparameters
        return model(**values) if isinstance(values, dict) else values

    @property
    def phases(self) -> int:
        """What it trains one after another: the tasks, or all of them at once."""
        return 1 if METHODS[self.method].at_once else self.tasks

    @property
    def stream_batch(self) -> int:
        """The stream's images in a step, of which a method may have a number of its own."""
        return int(getattr(self.hyperparameters, "batch_size", self.batch_size))

    @property
    def parameters(self) -> dict[str, Any]:
        """All but its names, as plain values: two runs alike in them are one run."""
        return self.model_dump(mode="json", exclude={"id", "study"})

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of `parameters`, in hex."""
        text = json.dumps(self.parameters, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Position(Strict):
    """Where a number stands among a benchmark's: its row, column and protocol."""

    method: str
    variant: str | None = None
    buffer: int | None
    protocol: Protocol

    @property
    def name(self) -> str:
        """What tells it from the others on its benchmark, in a word."""
        parts = self.method, self.variant, self.buffer, self.protocol
        return ".".join(str(part) for part in parts if part is not None)


class Cell(Position):
    """A cell of a table, and its runs by seed."""

    unchanged: bool  # it is the method as params.yaml has it: the variant, if any, changes nothing
    retuned: bool  # the variant changes hyperparameters
    searched: list[str]  # those of its hyperparameters that a search has chosen
    runs: dict[int, str]


class Table(Strict):
    """A table in the shape of the paper's Tables 1-3: methods, or variants of them, by buffer."""

    name: str
    title: str
    experiment: str
    benchmark: str
    source: str
    paper_source: str  # that the paper's number is from; `source` where nothing is scaled
    reduced: bool  # the study scales its benchmark down
    cells: list[Cell]
    variants: dict[str, str]  # their titles
    forgetting: Fidelity  # F8: the definition that it shows

    @property
    def protocols(self) -> list[Protocol]:
        """The protocols of its cells."""
        return list(dict.fromkeys(cell.protocol for cell in self.cells))

    @property
    def buffers(self) -> list[int | None]:
        """The buffers of its rehearsal methods, in order; None is without one."""
        buffers = {cell.buffer for cell in self.cells if METHODS[cell.method].rehearsal}
        return sorted(buffers, key=lambda buffer: buffer or 0)

    @property
    def rows(self) -> dict[tuple[str, str | None], str]:
        """The title of each row, by method and variant, in the order of `METHODS`."""
        order = list(METHODS)
        return {
            (cell.method, cell.variant): METHODS[cell.method].title
            + ("" if cell.variant is None else f", {self.variants[cell.variant]}")
            for cell in sorted(self.cells, key=lambda cell: order.index(cell.method))
        }


class Trial(Strict):
    """Hyperparameters that a search tries, and their runs by seed."""

    hyperparameters: SerializeAsAny[Hyperparameters]
    runs: dict[int, str]


class SearchCell(Position):
    """A cell whose hyperparameters are searched for."""

    benchmark: str
    as_set: SerializeAsAny[Hyperparameters]  # those of params.yaml
    named: list[str]  # the hyperparameters that it searches for
    trials: list[Trial]


class Plan(Strict):
    """What a study stands for: its runs, each once, and what is made of them."""

    params: Params  # that it is expanded from
    study: str
    title: str
    note: str | None  # what a reader must know of its numbers
    runs: dict[str, Run]
    tables: dict[str, Table]
    search: list[SearchCell]

    @property
    def sources(self) -> list[str]:
        """The sources its runs start from."""
        return sorted({run.source for run in self.runs.values()})

    @property
    def data(self) -> list[str]:
        """The data sets that its runs and the training of its sources need, in order."""
        needed = {data for run in self.runs.values() for data in (run.data, run.source_data)}
        sources = [self.params.sources[name] for name in self.sources]
        needed |= {source.data for source in sources if source.weights is None}
        return sorted(filter(None, needed))

    def named_table(self, name: str) -> Table:
        """The table called `name`, or an error that says which there are."""
        return lookup("table", self.tables, name, f"study {self.study}")

    def runs_of(self, table: Table) -> list[str]:
        """The runs that a table is made of."""
        return list(dict.fromkeys(run for cell in table.cells for run in cell.runs.values()))

    def runs_of_searches(self) -> list[str]:
        """The runs of all trials."""
        trials = (trial for cell in self.search for trial in cell.trials)
        return list(dict.fromkeys(run for trial in trials for run in trial.runs.values()))
