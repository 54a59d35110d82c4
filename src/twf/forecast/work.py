"""How much work a run is, and what is known of the time that it takes. No torch here."""

from __future__ import annotations

import json
from dataclasses import dataclass

from twf.data.registry import Splits
from twf.study import Run
from twf.study.methods import METHODS
from twf.study.params import Network, Params, Precision
from twf.study.types import Strict

# Values of each network at width 64 without its head; their number grows as the width's square.
VALUES = {"resnet18": 11.17e6, "resnet50": 23.5e6}
PRETRAINING = "pretraining"  # in the place of a run's benchmark
MIB = 2**20


class Cost(Strict):
    """What a run takes on one device, without start-up."""

    seconds: float
    memory_mib: float
    estimated: bool = False  # by runs of other kinds, and not timed itself


@dataclass(frozen=True)
class Work:
    """What there is to do in a run, or in the pretraining on a source."""

    run: Run
    kind: str  # all that decides its cost: runs that differ in seed or rates are of one kind
    network: tuple[Network, int, Precision]  # with the image's side and the precision
    images: int  # in a phase; all are taken to be of one size
    tested: int  # images that each evaluation goes through
    source: Splits | None  # images of the source that it has at hand
    data_mib: float  # images that it holds

    @property
    def per_image(self) -> float:
        """Roughly what an image in a step is beside those of other networks and sizes."""
        return self.network[1] ** 2 * network_mib(self.run.network)

    @property
    def size(self) -> float:
        """Roughly what all steps are beside those of other runs of the method."""
        return self.per_image * self.run.epochs * self.run.phases * self.images


def of_run(params: Params, run: Run, images: dict[str, Splits]) -> Work:
    """The work of a run, or of `pretraining`, on data sets of so many images."""
    data, size = images[run.data], params.datasets[run.data].size
    held_out = round((run.held_out or 0) * data.train)
    tested, source = held_out or data.test, None
    data_mib = (3 + (run.method == "joint")) * pixels_mib(data, size)  # file, tensors, tasks
    if run.source_data is not None:
        source = images[run.source_data]
        data_mib += 2 * pixels_mib(source, params.datasets[run.source_data].size)
    same = {"id", "study", "source", "pretrained", "seed", "lr_decay", "augmentation"}
    same |= {"source_augmentation", "hyperparameters"}
    kind = run.model_dump(mode="json", exclude=same) | {
        "counts": {name: v for name, v in run.hyperparameters if isinstance(v, int)},
        "images": [size, data.train, tested, source and [source.train, source.test]],
    }
    return Work(
        run=run,
        kind=json.dumps(kind, sort_keys=True),
        network=(run.network, size, run.precision),
        images=(data.train - held_out) // run.phases,
        tested=tested,
        source=source,
        data_mib=data_mib,
    )


def pretraining(params: Params, source: str, like: Run) -> Run:
    """Training on a source that has data, as a run of Finetune on one task; `like` has the rest."""
    recipe, data = params.sources[source].pretraining, params.sources[source].data
    assert recipe is not None and data is not None  # `Source` holds this
    change = {
        "id": source,
        "benchmark": PRETRAINING,
        "data": data,
        "source": source,
        "network": params.sources[source].network,
        "augmentation": params.datasets[data].augmentation,
        "method": "finetune",
        "tasks": 1,
        "classes": params.datasets[data].classes,
        "hyperparameters": METHODS["finetune"].hyperparameters(lr=recipe.lr),
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "precision": recipe.precision,
    }
    without = ("buffer", "probes", "source_data", "source_augmentation", "lr_decay", "held_out")
    return like.model_copy(update=dict.fromkeys(without) | change)


def estimated(work: Work, known: list[tuple[Work, Cost]]) -> Cost | None:
    """What a run takes as far as others are known; None where there is nothing to go by.

    It is in proportion to a run of its method on its network; else to one on another network, and
    then to what a run of a third method takes here against there.
    """
    rates = {(w.network, w.run.method): (cost.seconds / w.size, cost) for w, cost in known}
    found = rates.get((work.network, work.run.method))
    if found is None:
        for (network, method), (rate, _) in rates.items():
            for (here, third), (third_rate, cost) in rates.items():
                if (method, here) == (work.run.method, work.network) and (network, third) in rates:
                    found = rate * third_rate / rates[network, third][0], cost
    if found is None:
        return None
    rate, cost = found
    return cost.model_copy(update={"seconds": rate * work.size, "estimated": True})


def pixels_mib(images: Splits, size: int) -> float:
    """MiB of a data set's images."""
    return (images.train + images.test) * size**2 * 3 / MIB


def network_mib(network: Network) -> float:
    """The least that a file of a network's weights takes."""
    return VALUES[network.architecture] * (network.width / 64) ** 2 * 4 / MIB
