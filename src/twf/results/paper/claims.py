"""What the paper claims of its cells, as data. `evaluation` holds them against numbers.

A claim says that each difference of a family is positive, or the mean of some. A `Contest` says
which: the cells that are like `of`, each minus what differs from it as one of `over` does. The
statements are those of the paper's section on forgetting of the pretraining, of its results and of
its ablations, in this order. Where it names no protocol, a claim is of Class-IL, on which it says
it focuses, or of both, or there is one of each. Remarks that no difference puts into numbers are
left out: "competitive", "satisfactory", "less sensitive to the task at hand".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from twf.results.printed import CellKey
from twf.results.record import LAYERS

Keys = Collection[CellKey]  # of the paper's numbers, or of a study's cells and what was probed
Group = Literal["performance", "mechanism", "incidental"]

REHEARSAL = ("er", "co2l", "icarl", "derpp", "er-ace")  # those in Tables 1-3 beside TwF
MAIN = (*REHEARSAL, "twf")
CONTROL = "share-0-wide"  # DER++ with the source's classes in its head and none of its images
DISSIMILAR = ("svhn", "textures")  # sources unlike the benchmark: Table 5's, and the demo's

# What a column may be, beside a value or a tuple of several
EACH = "each variant but the control; the method as it is where it has none"
SMALLEST, LARGEST = "the smallest of several buffers", "the largest of several buffers"
FIRST, LATER, LAST = "after the first task", "after any task", "after the last task"
EACH_LATER = "after each task but the first"


@dataclass(frozen=True)
class Contest:
    """Differences: cells like `of`, each over those that differ from it as `over` says.

    Columns that `of` does not name may have any value, but for the variant and the quantity: it is
    of the method as it is, and of final average accuracy. `main` leaves out cells where not all of
    `MAIN` are. With `minus`, the same difference where the cells differ as it says is subtracted. A
    difference of which a cell is missing is none.
    """

    of: Mapping[str, Any]
    over: Sequence[Mapping[str, Any]]
    minus: Mapping[str, Any] | None = None
    main: bool = False


@dataclass(frozen=True)
class Claim:
    """A statement of the paper: the differences of its contests are positive.

    Each, or the mean of those alike in the columns that `mean_of` names: `over` is the row of the
    cell below; the mean of all with none.
    """

    name: str
    group: Group  # what it is about: the method's results, why it has them, or something beside
    statement: str
    contests: Sequence[Contest]
    mean_of: Sequence[str] | None = None
    unit: str = "FAA"
    benchmarks: Sequence[str] = ()  # those that it is of; all where it names none
    control: Sequence[Contest] = ()  # positive too where something else explains the claim

    def family(self, keys: Keys, control: bool = False) -> list[list[Difference]]:
        """The differences, or the control's, in the groups whose means are to be positive."""
        groups: dict[object, list[Difference]] = {}
        for contest in self.control if control else self.contests:
            for difference in differences(contest, keys):
                if not self.benchmarks or difference.cell.benchmark in self.benchmarks:
                    alike: object = difference
                    if self.mean_of is not None:
                        alike = tuple(difference.column(name) for name in self.mean_of)
                    groups.setdefault(alike, []).append(difference)
        return list(groups.values())


class Difference(NamedTuple):
    """The sum of some cells' values minus that of as many others."""

    above: tuple[CellKey, ...]
    below: tuple[CellKey, ...]

    @property
    def cell(self) -> CellKey:
        """Where it is taken: the first cell above."""
        return self.above[0]

    def column(self, name: str) -> object:
        """A column of the first cell above; `over` is the row of the first below."""
        return self.below[0].row if name == "over" else getattr(self.cell, name)

    def __str__(self) -> str:
        """In words, with the first cell's place."""
        above, below = (" and ".join(key.row for key in keys) for keys in self)
        return f"{above} over {below}, {self.cell.place}"


def in_words(group: Sequence[Difference]) -> str:
    """A mean of differences, by the first of them."""
    more = f", and {len(group) - 1} more on average" if len(group) > 1 else ""
    return f"{group[0]}{more}"


def differences(contest: Contest, keys: Keys) -> Iterator[Difference]:
    """Those of a contest, of the cells that there are."""
    wanted = dict(contest.of)
    for name, default in (("variant", ""), ("quantity", "faa")):
        wanted.setdefault(name, default)
    for key in keys:
        if not all(_is(key, name, value, keys) for name, value in wanted.items()):
            continue
        if contest.main and any(key._replace(method=name) not in keys for name in MAIN):
            continue
        for over in contest.over:
            for below in _others(key, over, keys):
                if contest.minus is None:
                    yield Difference((key,), (below,))
                    continue
                for above in _others(key, contest.minus, keys):
                    for other in _others(above, over, keys):
                        yield Difference((key, other), (below, above))


def _is(key: CellKey, name: str, wanted: Any, keys: Keys) -> bool:
    """Whether a column of a cell is as wanted."""
    if wanted == EACH:
        return key in _variants(key._replace(variant=""), keys)
    if isinstance(wanted, tuple):
        return getattr(key, name) in wanted
    if wanted == LATER:
        return key.tasks > 0
    return bool(getattr(key, name) == _value(key, name, wanted, keys))


def _value(key: CellKey, name: str, wanted: Any, keys: Keys) -> Any:
    """What a column is to be at a cell's place; nothing where there are no several buffers."""
    if wanted == FIRST:
        return 1
    if wanted == LAST:
        return max(other.tasks for other in keys if other._replace(tasks=key.tasks) == key)
    if wanted in (SMALLEST, LARGEST):
        alike = (k for k in keys if k._replace(buffer=key.buffer) == key)
        compared = [k.buffer for k in alike if all(k._replace(method=m) in keys for m in MAIN)]
        end = min if wanted == SMALLEST else max
        return end(compared) if len(compared) > 1 else None
    return wanted


def _variants(place: CellKey, keys: Keys) -> list[CellKey]:
    """A method's variants at a place but for `CONTROL`; the method as it is where it has none."""
    alike = [k for k in keys if k._replace(variant="") == place and k.variant != CONTROL]
    return [key for key in alike if key.variant] or alike


def _others(key: CellKey, change: Mapping[str, Any], keys: Keys) -> list[CellKey]:
    """The cells that differ from one as `change` says, as far as there are such."""
    if change.get("variant") == EACH:
        return _variants(key._replace(**dict(change) | {"variant": ""}), keys)
    if change.get("tasks") == EACH_LATER:
        return [
            other for other in keys if other.tasks > 1 and other._replace(tasks=key.tasks) == key
        ]
    other = key._replace(**{name: _value(key, name, v, keys) for name, v in change.items()})
    return [other] if other in keys and other != key else []


def _methods(*names: str) -> list[dict[str, str]]:
    return [{"method": name} for name in names]


def _main(method: str, *rivals: str, **of: Any) -> list[Contest]:
    """A method over each of some others, in the main comparison."""
    return [Contest({"method": method} | of, _methods(*rivals), main=True)]


def _without_buffer(*names: str) -> list[dict[str, Any]]:
    return [{"method": name, "buffer": 0} for name in names]


def _variant(method: str, *pairs: tuple[str, str]) -> list[Contest]:
    """One variant of a method over another, for each pair."""
    return [Contest({"method": method, "variant": one}, [{"variant": two}]) for one, two in pairs]


def _small_buffer(method: str, rival: str, protocol: str) -> Contest:
    """A method's gain over another with the smallest buffer, over that with the largest."""
    of = {"method": method, "protocol": protocol, "buffer": SMALLEST}
    return Contest(of, _methods(rival), minus={"buffer": LARGEST}, main=True)


_PROBED = {"method": "er", "variant": "pretrained"}

CLAIMS = (
    Claim(
        "cka-from-pretraining",
        "mechanism",
        "ER's layers stay closer to their initialization from pretraining than from scratch: CKA "
        "of each layer, mean over tasks",
        [Contest(_PROBED | {"quantity": "cka", "tasks": LATER}, [{"variant": "scratch"}])],
        mean_of=["benchmark", "source", "buffer", "protocol", "layer"],
        unit="CKA",
    ),
    Claim(
        "cka-last-layer",
        "mechanism",
        "From pretraining, ER's last residual layer changes most: CKA of each other layer over "
        "its, mean over tasks",
        [Contest(_PROBED | {"quantity": "cka", "tasks": LATER}, [{"layer": LAYERS[-1]}])],
        mean_of=["benchmark", "source", "buffer", "protocol", "layer"],
        unit="CKA",
    ),
    Claim(
        "source-forgotten",
        "mechanism",
        "ER forgets the source: nearest neighbours on Layers 3 and 4 find fewer of its labels "
        "after the first task than before, and fewer after the last than after the first",
        [
            Contest(_PROBED | {"quantity": "nearest_neighbours", "tasks": 0}, [{"tasks": FIRST}]),
            Contest(
                _PROBED | {"quantity": "nearest_neighbours", "tasks": FIRST}, [{"tasks": LAST}]
            ),
        ],
        unit="k-NN",
    ),
    Claim(
        "first-task-profits",
        "mechanism",
        "The first task profits more from pretraining than each later one: ER's Task-IL accuracy "
        "right after learning a task, from pretraining over from scratch",
        [
            Contest(
                _PROBED | {"quantity": "learned", "protocol": "task-il", "tasks": 1},
                [{"variant": "scratch"}],
                minus={"tasks": EACH_LATER},
            )
        ],
        unit="accuracy",
    ),
    Claim(
        "source-kept",
        "mechanism",
        "TwF keeps more of the source than without propagation: nearest neighbours on Layers 3 and "
        "4 after the last task",
        [
            Contest(
                {"method": "twf", "variant": "all", "quantity": "nearest_neighbours"}
                | {"tasks": LAST},
                [{"variant": "cl"}],
            )
        ],
        unit="k-NN",
    ),
    Claim(
        "pretraining-helps",
        "mechanism",
        "Pretraining raises ER's accuracy",
        _variant("er", ("pretrained", "scratch")),
    ),
    Claim(
        "first-class-il",
        "performance",
        "TwF is first in each Class-IL cell, among the paper's methods with a buffer",
        _main("twf", *REHEARSAL, protocol="class-il"),
    ),
    Claim(
        "first-task-il",
        "performance",
        "TwF is first in each Task-IL cell, among the paper's methods with a buffer",
        _main("twf", *REHEARSAL, protocol="task-il"),
    ),
    Claim(
        "gain-class-il",
        "performance",
        "TwF gains over DER++ in Class-IL on average (the paper: 4.81 points)",
        _main("twf", "derpp", protocol="class-il"),
        mean_of=[],
    ),
    Claim(
        "gain-task-il",
        "performance",
        "TwF gains over ER-ACE in Task-IL on average (the paper: 2.77 points)",
        _main("twf", "er-ace", protocol="task-il"),
        mean_of=[],
    ),
    Claim(
        "gain-over-each-class-il",
        "performance",
        "TwF gains in Class-IL on average over each of the paper's methods with a buffer",
        _main("twf", *REHEARSAL, protocol="class-il"),
        mean_of=["over"],
    ),
    Claim(
        "gain-over-each-task-il",
        "performance",
        "TwF gains in Task-IL on average over each of the paper's methods with a buffer",
        _main("twf", *REHEARSAL, protocol="task-il"),
        mean_of=["over"],
    ),
    Claim(
        "gain-small-buffer",
        "performance",
        "TwF's gain over DER++ (Class-IL) and ER-ACE (Task-IL) is larger with the smaller buffer, "
        "on Split CIFAR-10 and Split CUB-200",
        [_small_buffer("twf", "derpp", "class-il"), _small_buffer("twf", "er-ace", "task-il")],
        benchmarks=["split-cifar10", "split-cub200"],
    ),
    Claim(
        "buffer-above-regularization",
        "incidental",
        "Each of the paper's methods with a buffer is better than oEWC and LwF in each Class-IL "
        "cell",
        [Contest({"method": MAIN, "protocol": "class-il"}, _without_buffer("oewc", "lwf"))],
    ),
    Claim(
        "oewc-best-without-buffer",
        "incidental",
        "oEWC is the best of the paper's methods without a buffer in each Class-IL cell",
        [Contest({"method": "oewc", "protocol": "class-il"}, _without_buffer("finetune", "lwf"))],
    ),
    Claim(
        "oewc-below-finetune",
        "incidental",
        "oEWC is worse than Finetune on Split CUB-200, in Class-IL and Task-IL",
        [Contest({"method": "finetune"}, _without_buffer("oewc"))],
        benchmarks=["split-cub200"],
    ),
    Claim(
        "icarl-second",
        "incidental",
        "On Split CIFAR-100, iCaRL is better than the paper's other methods with a buffer but TwF",
        _main("icarl", "er", "co2l", "derpp", "er-ace"),
        benchmarks=["split-cifar100"],
    ),
    Claim(
        "icarl-below-derpp-class-il",
        "incidental",
        "iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in Class-IL",
        _main("derpp", "icarl", protocol="class-il"),
        benchmarks=["split-cifar10", "split-cub200"],
    ),
    Claim(
        "icarl-below-derpp-task-il",
        "incidental",
        "iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in Task-IL",
        _main("derpp", "icarl", protocol="task-il"),
        benchmarks=["split-cifar10", "split-cub200"],
    ),
    Claim(
        "er-ace-small-buffer",
        "incidental",
        "From the larger buffer to the smaller, ER-ACE loses less than ER",
        [_small_buffer("er-ace", "er", protocol) for protocol in ("class-il", "task-il")],
    ),
    Claim(
        "er-ace-below-derpp-class-il",
        "incidental",
        "ER-ACE is worse than DER++ with the larger buffer in Class-IL",
        _main("derpp", "er-ace", protocol="class-il", buffer=LARGEST),
    ),
    Claim(
        "er-ace-below-derpp-task-il",
        "incidental",
        "ER-ACE is worse than DER++ with the larger buffer in Task-IL",
        _main("derpp", "er-ace", protocol="task-il", buffer=LARGEST),
    ),
    Claim(
        "cl-most-influential",
        "mechanism",
        "Leaving out L_CL costs more than leaving out L_AUX, or L_FP and L_AUX, in each cell",
        _variant("twf", ("cl-fp", "fp-aux"), ("cl", "fp-aux")),
    ),
    Claim(
        "cl-helps",
        "mechanism",
        "L_CL on top of L_FP and L_AUX raises accuracy in each cell",
        _variant("twf", ("all", "fp-aux")),
    ),
    Claim(
        "fp-helps",
        "mechanism",
        "L_FP on top of L_CL raises accuracy in each cell",
        _variant("twf", ("cl-fp", "cl")),
    ),
    Claim(
        "aux-helps",
        "mechanism",
        "L_AUX on top of L_FP raises accuracy in each cell, with and without L_CL",
        _variant("twf", ("all", "cl-fp"), ("fp-aux", "fp")),
    ),
    Claim(
        "fp-without-buffer",
        "mechanism",
        "L_FP and L_AUX without a buffer are better than oEWC on each benchmark",
        [
            Contest(
                {"method": "twf", "variant": "fp-aux", "buffer": 0},
                [{"method": "oewc", "variant": ""}],
            )
        ],
        control=[  # the stream loss without either
            Contest(
                {"method": "twf", "variant": "stream", "buffer": 0},
                [{"method": "oewc", "variant": ""}],
            )
        ],
    ),
    Claim(
        "anchor-helps",
        "incidental",
        "An EWC anchor to the pretrained weights raises DER++'s accuracy in each cell",
        [Contest({"method": "derpp-ewc", "variant": EACH}, [{"method": "derpp", "variant": ""}])],
    ),
    Claim(
        "anchor-helps-task-il",
        "incidental",
        "The EWC anchor raises DER++'s accuracy more in Task-IL than in Class-IL",
        [
            Contest(
                {"method": "derpp-ewc", "protocol": "task-il"},
                _methods("derpp"),
                minus={"protocol": "class-il"},
            )
        ],
    ),
    Claim(
        "anchor-below-twf",
        "performance",
        "TwF is better than DER++ with an EWC anchor in each cell",
        [Contest({"method": "twf"}, [{"method": "derpp-ewc", "variant": EACH}])],
    ),
    Claim(
        "pretraining-images-help",
        "incidental",
        "Pretraining images in the buffer raise DER++'s accuracy, in the mean over their shares",
        [
            Contest(
                {"method": "derpp-pretraining", "variant": EACH},
                [{"method": "derpp", "variant": ""}],
            )
        ],
        mean_of=[],
    ),
    Claim(
        "pretraining-images-below-twf",
        "performance",
        "TwF is better than DER++ with any share of pretraining images in its buffer",
        [Contest({"method": "twf"}, [{"method": "derpp-pretraining", "variant": EACH}])],
    ),
    Claim(
        "first-from-dissimilar-source",
        "performance",
        "Pretrained on a dissimilar source, TwF is better than iCaRL and DER++ in each cell",
        [Contest({"method": "twf", "source": DISSIMILAR}, _methods("icarl", "derpp"))],
    ),
)
