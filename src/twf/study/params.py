"""`params.yaml` as types: with `expansion`, the one definition of everything that is run."""

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, ValidationInfo, create_model, model_validator

from twf.errors import UserError, lookup, near_miss
from twf.study.methods import METHODS, SWITCHES
from twf.study.types import Count, Fidelity, Hyperparameters, NonNegative, Positive, Strict

T = TypeVar("T")


def _distinct(values: list[T]) -> list[T]:
    """The same: a mean would count what stands twice twice."""
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{value!r} stands twice")
    return values


Several = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]
# names make file names, which have a bound
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # as records hold it
Share = Annotated[float, Field(ge=0, le=1)]
Spread = Annotated[float, Field(gt=0, le=1)]
Protocol = Literal["class-il", "task-il"]
Precision = Literal["fp32", "tf32", "bf16", "auto"]  # of products of matrices and convolutions
Execution = Literal["plain", "captured"]  # of a training step: see `twf.learning.step`
PROTOCOLS: tuple[Protocol, Protocol] = ("class-il", "task-il")


def _among(allowed: str | Collection[str]) -> AfterValidator:
    """One of these, or of what `params.yaml`, the context of the check, has under this key."""

    def check(name: str, info: ValidationInfo) -> str:
        names = (info.context or {}).get(allowed) if isinstance(allowed, str) else allowed
        if isinstance(names, dict) and name not in names:
            near = near_miss(name, map(str, names))
            raise ValueError(f"not one of {', '.join(map(str, names))}{near}")
        return name

    return AfterValidator(check)


MethodName = Annotated[str, _among(METHODS)]
Switch = Annotated[str, _among(SWITCHES)]
DataName = Annotated[Name, _among("datasets")]
SourceName = Annotated[Name, _among("sources")]
BenchmarkName = Annotated[Name, _among("benchmarks")]


class Augmentation(Strict):
    """What an image passes before the network: crop after zero padding, flip, normalisation."""

    padding: Annotated[int, Field(ge=0)] = 4  # black pixels on each side
    flip: bool = True  # horizontally, at random
    # of red, green and blue, where white is 1
    mean: Annotated[list[Share], Field(min_length=3, max_length=3)]
    std: Annotated[list[Spread], Field(min_length=3, max_length=3)]


class _Dataset(Strict):
    title: str
    classes: Count
    size: Annotated[int, Field(ge=16)]  # pixels along a side
    augmentation: Augmentation


class DigitsData(_Dataset):
    """UCI handwritten digits, as scikit-learn carries them (8 x 8 pixels, enlarged)."""

    reader: Literal["digits"]
    test_share: Annotated[float, Field(gt=0, lt=1)]  # of each class
    seed: Seed  # of the split


class DrawnData(_Dataset):
    """Letters from matplotlib's fonts, or textures; drawn from a seed."""

    reader: Literal["letters", "textures"]
    train_per_class: Count
    test_per_class: Count
    seed: Seed  # of the drawing


class ArchiveData(_Dataset):
    """Arrays of a user's own: a NumPy archive with `x_train, y_train, x_test, y_test`."""

    reader: Literal["archive"]
    file: str


class OfficialData(_Dataset):
    """A published data set: an entry of src/twf/data/registry.yaml, fetched and checked."""

    reader: Literal["official"]
    archive: Name


Dataset = Annotated[
    DigitsData | DrawnData | ArchiveData | OfficialData, Field(discriminator="reader")
]


class Network(Strict):
    """A ResNet; `width` is the channels of its first stage."""

    architecture: Literal["resnet18", "resnet50"]
    width: Annotated[Count, Field(ge=4)] = 64  # TwF's attention has a quarter of it


class Pretraining(Hyperparameters):
    """Plain cross-entropy with SGD; the paper names the epochs alone."""

    epochs: Count
    batch_size: Count  # the last, incomplete batch is dropped
    momentum: NonNegative = 0.0
    weight_decay: NonNegative = 0.0
    schedule: Literal["constant", "cosine"]  # cosine: to zero
    precision: Precision = "tf32"
    seed: Seed = 0  # of weights, order and augmentation


class Source(Strict):
    """A pretrained network: trained on `data`, or read from `weights`, which that training gave."""

    network: Network
    data: DataName | None = None
    pretraining: Pretraining | None = None
    weights: str | None = None

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.data is None) != (self.pretraining is None) or not (self.data or self.weights):
            raise ValueError("give 'data' and 'pretraining' together, or 'weights', or all three")
        return self


class LrDecay(Strict):
    """The learning rate is multiplied by `factor` before each of `epochs`, anew in every task."""

    factor: Positive
    epochs: Several[Count]  # counted from 0

    def is_late(self, epochs: int) -> bool:
        """Whether so many epochs end before the first decay."""
        return all(epoch >= epochs for epoch in self.epochs)


def _settings(name: str, hyperparameters: type[Hyperparameters]) -> Any:
    """The type of a method's entry: its hyperparameters, and `overrides` of them for some cells."""
    optional: dict[str, Any] = {
        key: (Annotated[(field.annotation, None, *field.metadata)] | None, None)
        for key, field in hyperparameters.model_fields.items()
    }
    optional |= {"buffer": (Count | None, None), "protocol": (Protocol | None, None)}
    override: Any = create_model(f"{name}-override", __base__=Strict, **optional)
    overrides: Any = (list[override], Field(default_factory=list))
    return create_model(f"{name}-settings", __base__=hyperparameters, overrides=overrides)


_entries: Any = {n: (_settings(n, m.hyperparameters) | None, None) for n, m in METHODS.items()}
Methods: type[Strict] = create_model("Methods", __base__=Strict, **_entries)


class Benchmark(Strict):
    """A stream of tasks, and the hyperparameters of each method on it."""

    title: str
    data: DataName
    tasks: Annotated[int, Field(ge=2)]  # of equally many classes, in order
    source: SourceName
    epochs: Count  # per task
    batch_size: Count  # of the stream, and of replay
    lr_decay: LrDecay | None = None
    buffers: Several[Count]
    methods: Methods

    def hyperparameters(
        self, method: str, buffer: int | None, protocol: Protocol
    ) -> Hyperparameters:
        """The method's, changed by each override that matches. Raises `UserError` if none stand."""
        settings = getattr(self.methods, method)
        if settings is None:
            raise UserError(
                f"{method!r} has no hyperparameters on {self.title}; add its entry to `methods` "
                "there, under `benchmarks` in params.yaml"
            )
        values = settings.model_dump(exclude={"overrides"})
        for override in settings.overrides:
            if override.buffer in (None, buffer) and override.protocol in (None, protocol):
                values |= override.model_dump(exclude={"buffer", "protocol"}, exclude_none=True)
        return METHODS[method].hyperparameters(**values)


class Scale(Strict):
    """What a study changes of a benchmark, to take less time."""

    epochs: Count
    source: SourceName
    lr_decay: LrDecay | None = None
    buffers: Several[Count] | None = None  # not the benchmark's own


class Variant(Strict):
    """How some runs of an experiment differ from what params.yaml says elsewhere."""

    title: str
    methods: Several[MethodName] | None = None  # those it is about; all of the experiment's
    without_buffer: bool = False  # run methods that can without a buffer too
    pretrained: bool = True  # false: from random weights
    fidelity: dict[Switch, Fidelity] = Field(default_factory=dict)
    hyperparameters: dict[str, int | float] = Field(default_factory=dict)


class Search(Strict):
    """A search for hyperparameters: a run for each combination of a method's values, if any."""

    held_out: Annotated[float, Field(gt=0, lt=1)]  # share of the training set that decides
    points: Count | None = None  # at most so many combinations, at random; all of them
    grids: dict[MethodName, dict[str, Several[int | float]]]


class Experiment(Strict):
    """One question: methods, or variants of them, on benchmarks; a table, or a search, for each."""

    title: str
    benchmarks: Several[BenchmarkName]
    methods: Several[MethodName]
    protocols: Several[Protocol] = Field(default=list(PROTOCOLS))
    buffers: Several[Count] | None = None  # not the benchmarks' own
    probes: bool = False  # follow how the initialization is forgotten: CKA and k-NN accuracy
    variants: dict[Name, Variant] = Field(default_factory=dict)
    source: SourceName | None = None  # in place of the benchmarks' own
    seeds: Several[Seed] | None = None  # not the study's own
    search: Search | None = None

    @model_validator(mode="after")
    def _of_its_methods(self) -> Self:
        if self.search is not None and (left := set(self.methods) - self.search.grids.keys()):
            raise ValueError(f"search.grids: say which values of {min(left)} to try")
        if self.search is not None and (others := self.search.grids.keys() - set(self.methods)):
            raise ValueError(f"search.grids: {min(others)} is no method of the experiment")
        if self.search is not None and self.probes:
            raise ValueError("probes: a search follows no initialization; leave it out")
        for name, variant in self.variants.items():
            if others := set(variant.methods or ()) - set(self.methods):
                raise ValueError(f"variants.{name}: {min(others)} is no method of the experiment")
            methods = variant.methods or self.methods
            if variant.without_buffer and not any(METHODS[m].without_buffer for m in methods):
                raise ValueError(f"variants.{name}.without_buffer: no method of it can")
            asked = {s for m in methods for s in METHODS[m].switches}
            if unasked := variant.fidelity.keys() - asked:
                raise ValueError(f"variants.{name}.fidelity: no method of it has {min(unasked)}")
        return self


class Study(Strict):
    """What is run together and reported together."""

    title: str
    note: str | None = None  # what a reader must know of its numbers, shown beside them
    seeds: Several[Seed]
    precision: Precision = "tf32"
    follow_code: bool = False  # whether a change of a method's code makes its runs again
    fidelity: dict[Switch, Fidelity] = Field(default_factory=dict)  # in place of the params' own
    scale: dict[BenchmarkName, Scale] = Field(default_factory=dict)  # by benchmark
    # the file of a search, in place of the benchmarks' values
    best_hyperparameters: str | None = None
    experiments: Annotated[dict[Name, Experiment], Field(min_length=1)]


class Tracking(Strict):
    """Weights & Biases: `auto` is online with a key, offline if configured without, else off."""

    mode: Literal["auto", "online", "offline", "off"] = "auto"
    project: str = "twf"  # what the names of projects begin with
    entity: str | None = None  # a team or user; its default


class Params(Strict):
    """The whole of `params.yaml`."""

    study: Annotated[Name, _among("studies")]
    gpu_slots: Count = 1  # jobs that share a GPU
    tracking: Tracking = Tracking()
    fidelity: dict[Switch, Fidelity]
    datasets: dict[Name, Dataset]
    sources: dict[Name, Source]
    benchmarks: dict[Name, Benchmark]
    studies: dict[Name, Study]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name in self.studies.keys() & {"data", "checkpoints", "evidence"}:
            place = "results" if name == "evidence" else "plans"
            raise ValueError(f"studies.{name}: another name, as {place}/{name}/ is taken")
        for switch in SWITCHES.keys() - self.fidelity.keys():
            raise ValueError(f"fidelity: say 'paper' or 'published' for {switch}")
        for name, benchmark in self.benchmarks.items():
            if (classes := self.datasets[benchmark.data].classes) % benchmark.tasks:
                raise ValueError(f"benchmarks.{name}.tasks: {classes} classes do not divide by it")
            if benchmark.lr_decay and benchmark.lr_decay.is_late(benchmark.epochs):
                raise ValueError(f"benchmarks.{name}.lr_decay.epochs: after the last epoch")
            buffers = {None, *self.buffers(name)}
            for method, entry in benchmark.methods:
                sizes = {override.buffer for override in entry.overrides} if entry else set()
                if others := sizes - (buffers if METHODS[method].rehearsal else {None}):
                    where = f"benchmarks.{name}.methods.{method}.overrides"
                    raise ValueError(f"{where}: buffer {min(others)}, which it never has")
        for study_name, study in self.studies.items():
            run = {name for each in study.experiments.values() for name in each.benchmarks}
            for name, scale in study.scale.items():
                where = f"studies.{study_name}.scale.{name}"
                if name not in run:
                    raise ValueError(f"{where}: no experiment of the study has this benchmark")
                own = "lr_decay" in scale.model_fields_set
                decay = (scale if own else self.benchmarks[name]).lr_decay
                if decay is not None and decay.is_late(scale.epochs):
                    late = f"the decay is at {decay.epochs}, after {scale.epochs} epochs"
                    raise ValueError(f"{where}.lr_decay: say when, or null, as {late}")
        return self

    def buffers(self, benchmark: str) -> set[int]:
        """The buffers that a benchmark has, of its own and by scales and experiments."""
        places: list[Benchmark | Scale | Experiment] = [self.benchmarks[benchmark]]
        for study in self.studies.values():
            places += [scale for name, scale in study.scale.items() if name == benchmark]
            places += [each for each in study.experiments.values() if benchmark in each.benchmarks]
        return {size for place in places for size in place.buffers or ()}

    def named_study(self, name: str) -> Study:
        """The study called `name`, or a `UserError` that says which there are."""
        return lookup("study", self.studies, name, "params.yaml")

    def switches(self, study: str) -> dict[str, Fidelity]:
        """Whether each switch follows paper or published code, as a study has it."""
        return self.fidelity | self.named_study(study).fidelity

    def benchmark(self, name: str, study: str) -> Benchmark:
        """A benchmark as a study has it."""
        own, scale = self.benchmarks[name], self.named_study(study).scale.get(name)
        changes = {key: getattr(scale, key) for key in scale.model_fields_set} if scale else {}
        buffers = (scale and scale.buffers) or own.buffers
        return own.model_copy(update=changes | {"buffers": buffers})
