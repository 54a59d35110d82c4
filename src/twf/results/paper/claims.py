"""What the paper claims of its cells, as data. `claim_tests.evaluate` gives the verdicts.

A claim says that each difference of a family is positive, or the mean of some: `Claim.family`. A
`Contest` says which: the cells that are like `of`, each minus what differs from it as one of `over`
does. The statements are those of the paper's section on forgetting of the pretraining, of its
results and of its ablations, in this order. Where it names no protocol, a claim is of Class-IL, on
which it says it focuses, or of both, or there is one of each. Remarks that no difference puts into
numbers are left out: "competitive", "satisfactory", "less sensitive to the task at hand".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from twf.results.printed import CellKey
from twf.results.record import LAYERS
from twf.results.show import PROTOCOL_TITLES

Keys = Collection[CellKey]  # of the paper's numbers, or of a study's cells and what was probed
Select = Callable[[CellKey, Keys], Collection[Any]]  # what a column may be at a cell's place
Group = Literal["performance", "mechanism", "incidental"]

REHEARSAL = ("er", "co2l", "icarl", "derpp", "er-ace")  # those in Tables 1-3 beside TwF
MAIN = (*REHEARSAL, "twf")
CONTROL = "share-0-wide"  # DER++ with the source's classes in its head and none of its images
DISSIMILAR = ("svhn", "textures")  # sources unlike the benchmark: Table 5's, and the demo's


@dataclass(frozen=True)
class Contest:
    """Differences: cells like `of`, each over those that differ from it as `over` says.

    By column, a value, a tuple of several, or a function that selects them. Columns that `of` does
    not name may have any value, but for the variant and the quantity: it is of the method as it is,
    and of final average accuracy. `main` leaves out cells where not all of `MAIN` are. With
    `minus`, the same difference where the cells differ as it says is subtracted. A difference of
    which a cell is missing is none.
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

    group: Group  # what it is about: the method's results, why it has them, or something beside
    name: str
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
    wanted = ({"variant": "", "quantity": "faa"} | dict(contest.of)).items()
    ordered = sorted(wanted, key=lambda of: callable(of[1]))  # what looks at all keys goes last
    for key in keys:
        if not all(getattr(key, name) in _values(key, of, keys) for name, of in ordered):
            continue
        if contest.main and not _of_all_main(key, keys):
            continue
        for over in contest.over:
            for below in _changed(key, over, keys):
                if contest.minus is None:
                    yield Difference((key,), (below,))
                    continue
                for above in _changed(key, contest.minus, keys):
                    for other in _changed(above, over, keys):
                        yield Difference((key, other), (below, above))


def _values(key: CellKey, wanted: Any, keys: Keys) -> Collection[Any]:
    if callable(wanted):
        return wanted(key, keys)
    return wanted if isinstance(wanted, tuple) else (wanted,)


def _changed(key: CellKey, change: Mapping[str, Any], keys: Keys) -> list[CellKey]:
    """The cells that differ from one as `change` says, as far as there are such."""
    changed = [key]
    for name, wanted in change.items():
        changed = [of._replace(**{name: v}) for of in changed for v in _values(of, wanted, keys)]
    return [of for of in changed if of in keys and of != key]


def _of_all_main(key: CellKey, keys: Keys) -> bool:
    return all(key._replace(method=method) in keys for method in MAIN)


def _alike(key: CellKey, name: str, keys: Keys) -> list[CellKey]:
    """The cells that differ from one in a column alone, and the cell itself."""
    return [of for of in keys if of._replace(**{name: getattr(key, name)}) == key]


# What selects values


def each_variant(key: CellKey, keys: Keys) -> Collection[str]:
    """All but the control; the method as it is where it has none."""
    variants = [of.variant for of in _alike(key, "variant", keys) if of.variant != CONTROL]
    return [name for name in variants if name] or variants


def smallest(key: CellKey, keys: Keys) -> Collection[int]:
    """The smallest of several buffers with which all main methods are."""
    return sorted(_buffers(key, keys))[:1]


def largest(key: CellKey, keys: Keys) -> Collection[int]:
    """The largest of these."""
    return sorted(_buffers(key, keys))[-1:]


def _buffers(key: CellKey, keys: Keys) -> list[int]:
    buffers = [of.buffer for of in _alike(key, "buffer", keys) if _of_all_main(of, keys)]
    return buffers if len(buffers) > 1 else []


def later(key: CellKey, keys: Keys) -> Collection[int]:
    """After each task but the first."""
    return [of.tasks for of in _alike(key, "tasks", keys) if of.tasks > 1]


def last(key: CellKey, keys: Keys) -> Collection[int]:
    """After the last task."""
    return [max((of.tasks for of in _alike(key, "tasks", keys)), default=0)]


def trained(key: CellKey, keys: Keys) -> Collection[int]:
    """After any task."""
    return (key.tasks,) if key.tasks else ()


def _over(of: Mapping[str, Any], *over: Mapping[str, Any], **more: Any) -> list[Contest]:
    return [Contest(of, over, **more)]


def _main(method: str, *rivals: str, **of: Any) -> list[Contest]:
    """A method over each of some others, in the main comparison."""
    return _over({"method": method} | of, *({"method": name} for name in rivals), main=True)


def _variant(method: str, *pairs: tuple[str, str]) -> list[Contest]:
    """One variant of a method over another, for each pair."""
    return [Contest({"method": method, "variant": one}, [{"variant": two}]) for one, two in pairs]


def _small_buffer(method: str, rival: str, protocol: str) -> list[Contest]:
    """A method's gain over another with the smallest buffer, over that with the largest."""
    of = {"method": method, "protocol": protocol, "buffer": smallest}
    return _over(of, {"method": rival}, minus={"buffer": largest}, main=True)


TWF, DERPP = {"method": "twf"}, {"method": "derpp", "variant": ""}
ANCHOR = {"method": "derpp-ewc", "variant": each_variant}
IMAGES = {"method": "derpp-pretraining", "variant": each_variant}
OEWC, LWF, FINETUNE = ({"method": name, "buffer": 0} for name in ("oewc", "lwf", "finetune"))
PROBED = {"method": "er", "variant": "pretrained"}
NEIGHBOURS = {"quantity": "nearest_neighbours"}

performance, mechanism, incidental = (partial(Claim, group) for group in get_args(Group))

CLAIMS = (
    mechanism(
        "cka-from-pretraining",
        "ER's layers stay closer to their initialization from pretraining than from scratch: CKA "
        "of each layer, mean over tasks",
        _over(PROBED | {"quantity": "cka", "tasks": trained}, {"variant": "scratch"}),
        mean_of=["benchmark", "source", "buffer", "protocol", "layer"],
        unit="CKA",
    ),
    mechanism(
        "cka-last-layer",
        "From pretraining, ER's last residual layer changes most: CKA of each other layer over "
        "its, mean over tasks",
        _over(PROBED | {"quantity": "cka", "tasks": trained}, {"layer": LAYERS[-1]}),
        mean_of=["benchmark", "source", "buffer", "protocol", "layer"],
        unit="CKA",
    ),
    mechanism(
        "source-forgotten",
        "ER forgets the source: nearest neighbours on Layers 3 and 4 find fewer of its labels "
        "after the first task than before, and fewer after the last than after the first",
        _over(PROBED | NEIGHBOURS | {"tasks": 0}, {"tasks": 1})
        + _over(PROBED | NEIGHBOURS | {"tasks": 1}, {"tasks": last}),
        unit="k-NN",
    ),
    mechanism(
        "first-task-profits",
        "The first task profits more from pretraining than each later one: ER's Task-IL accuracy "
        "right after learning a task, from pretraining over from scratch",
        _over(
            PROBED | {"quantity": "learned", "protocol": "task-il", "tasks": 1},
            {"variant": "scratch"},
            minus={"tasks": later},
        ),
        unit="accuracy",
    ),
    mechanism(
        "source-kept",
        "TwF keeps more of the source than without propagation: nearest neighbours on Layers 3 and "
        "4 after the last task",
        _over(TWF | NEIGHBOURS | {"variant": "all", "tasks": last}, {"variant": "cl"}),
        unit="k-NN",
    ),
    mechanism(
        "pretraining-helps",
        "Pretraining raises ER's accuracy",
        _variant("er", ("pretrained", "scratch")),
    ),
    *(
        performance(
            f"first-{protocol}",
            f"TwF is first in each {title} cell, among the paper's methods with a buffer",
            _main("twf", *REHEARSAL, protocol=protocol),
        )
        for protocol, title in PROTOCOL_TITLES.items()
    ),
    performance(
        "gain-class-il",
        "TwF gains over DER++ in Class-IL on average (the paper: 4.81 points)",
        _main("twf", "derpp", protocol="class-il"),
        mean_of=[],
    ),
    performance(
        "gain-task-il",
        "TwF gains over ER-ACE in Task-IL on average (the paper: 2.77 points)",
        _main("twf", "er-ace", protocol="task-il"),
        mean_of=[],
    ),
    *(
        performance(
            f"gain-over-each-{protocol}",
            f"TwF gains in {title} on average over each of the paper's methods with a buffer",
            _main("twf", *REHEARSAL, protocol=protocol),
            mean_of=["over"],
        )
        for protocol, title in PROTOCOL_TITLES.items()
    ),
    performance(
        "gain-small-buffer",
        "TwF's gain over DER++ (Class-IL) and ER-ACE (Task-IL) is larger with the smaller buffer, "
        "on Split CIFAR-10 and Split CUB-200",
        _small_buffer("twf", "derpp", "class-il") + _small_buffer("twf", "er-ace", "task-il"),
        benchmarks=["split-cifar10", "split-cub200"],
    ),
    incidental(
        "buffer-above-regularization",
        "Each of the paper's methods with a buffer is better than oEWC and LwF in each Class-IL "
        "cell",
        _over({"method": MAIN, "protocol": "class-il"}, OEWC, LWF),
    ),
    incidental(
        "oewc-best-without-buffer",
        "oEWC is the best of the paper's methods without a buffer in each Class-IL cell",
        _over({"method": "oewc", "protocol": "class-il"}, FINETUNE, LWF),
    ),
    incidental(
        "oewc-below-finetune",
        "oEWC is worse than Finetune on Split CUB-200, in Class-IL and Task-IL",
        _over({"method": "finetune"}, OEWC),
        benchmarks=["split-cub200"],
    ),
    incidental(
        "icarl-second",
        "On Split CIFAR-100, iCaRL is better than the paper's other methods with a buffer but TwF",
        _main("icarl", "er", "co2l", "derpp", "er-ace"),
        benchmarks=["split-cifar100"],
    ),
    *(
        incidental(
            f"icarl-below-derpp-{protocol}",
            f"iCaRL is worse than DER++ on Split CIFAR-10 and Split CUB-200 in {title}",
            _main("derpp", "icarl", protocol=protocol),
            benchmarks=["split-cifar10", "split-cub200"],
        )
        for protocol, title in PROTOCOL_TITLES.items()
    ),
    incidental(
        "er-ace-small-buffer",
        "From the larger buffer to the smaller, ER-ACE loses less than ER",
        _small_buffer("er-ace", "er", "class-il") + _small_buffer("er-ace", "er", "task-il"),
    ),
    *(
        incidental(
            f"er-ace-below-derpp-{protocol}",
            f"ER-ACE is worse than DER++ with the larger buffer in {title}",
            _main("derpp", "er-ace", protocol=protocol, buffer=largest),
        )
        for protocol, title in PROTOCOL_TITLES.items()
    ),
    mechanism(
        "cl-most-influential",
        "Leaving out L_CL costs more than leaving out L_AUX, or L_FP and L_AUX, in each cell",
        _variant("twf", ("cl-fp", "fp-aux"), ("cl", "fp-aux")),
    ),
    mechanism(
        "cl-helps",
        "L_CL on top of L_FP and L_AUX raises accuracy in each cell",
        _variant("twf", ("all", "fp-aux")),
    ),
    mechanism(
        "fp-helps",
        "L_FP on top of L_CL raises accuracy in each cell",
        _variant("twf", ("cl-fp", "cl")),
    ),
    mechanism(
        "aux-helps",
        "L_AUX on top of L_FP raises accuracy in each cell, with and without L_CL",
        _variant("twf", ("all", "cl-fp"), ("fp-aux", "fp")),
    ),
    mechanism(
        "fp-without-buffer",
        "L_FP and L_AUX without a buffer are better than oEWC on each benchmark",
        _over(TWF | {"variant": "fp-aux", "buffer": 0}, {"method": "oewc", "variant": ""}),
        control=_over(  # the stream loss without either
            TWF | {"variant": "stream", "buffer": 0}, {"method": "oewc", "variant": ""}
        ),
    ),
    incidental(
        "anchor-helps",
        "An EWC anchor to the pretrained weights raises DER++'s accuracy in each cell",
        _over(ANCHOR, DERPP),
    ),
    incidental(
        "anchor-helps-task-il",
        "The EWC anchor raises DER++'s accuracy more in Task-IL than in Class-IL",
        _over(
            {"method": "derpp-ewc", "protocol": "task-il"},
            {"method": "derpp"},
            minus={"protocol": "class-il"},
        ),
    ),
    performance(
        "anchor-below-twf",
        "TwF is better than DER++ with an EWC anchor in each cell",
        _over(TWF, ANCHOR),
    ),
    incidental(
        "pretraining-images-help",
        "Pretraining images in the buffer raise DER++'s accuracy, in the mean over their shares",
        _over(IMAGES, DERPP),
        mean_of=[],
    ),
    performance(
        "pretraining-images-below-twf",
        "TwF is better than DER++ with any share of pretraining images in its buffer",
        _over(TWF, IMAGES),
    ),
    performance(
        "first-from-dissimilar-source",
        "Pretrained on a dissimilar source, TwF is better than iCaRL and DER++ in each cell",
        _over(TWF | {"source": DISSIMILAR}, {"method": "icarl"}, {"method": "derpp"}),
    ),
)
