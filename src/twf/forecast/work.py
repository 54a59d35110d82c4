"""How much work a run is, and what is known of the time that it takes. No torch here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from twf.data.registry import Splits
from twf.study import Run
from twf.study.params import Network, Params, Precision
from twf.study.types import Hyperparameters, Strict

# Values of each network at width 64 without its head; their number grows as the width's square.
VALUES = {"resnet18": 11.17e6, "resnet50": 23.5e6}
PRETRAINING = "pretraining"  # in the place of a run's method
MIB = 2**20


BASES = {
    "measured": "by records of like runs",
    "timed": "steps on few images",
    "passes": "by the images that pass the network",
    "estimated": "in proportion to other runs",
}


class Cost(Strict):
    """What a run takes on one device, without start-up."""

    seconds: float
    memory_mib: float
    basis: str  # how it is known; its first word is one of `BASES`


@dataclass(frozen=True)
class Work:
    """What there is to do in a run, or in the pretraining on a source."""

    run: Run
    kind: str  # all that decides its cost: runs that differ in seed or rates are of one kind
    network: tuple[Network, int, Precision]  # with the image's side and the precision
    images: int  # in a task, or in the one phase of Joint; all tasks are taken to be of one size
    source_images: int  # that a method's setup goes through at most
    evaluated: int  # images in all evaluations together
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
    data_mib = (3 + (run.method == "joint")) * pixels_mib(data, size)  # file, tensors, tasks
    held_out, source = round((run.held_out or 0) * data.train), 0
    evaluated = held_out or data.test
    if run.source_data is not None:
        source = images[run.source_data].train
        data_mib += 2 * pixels_mib(images[run.source_data], params.datasets[run.source_data].size)
        if run.probes:  # they go through these once more, and through the source's
            evaluated += evaluated + source + images[run.source_data].test
    evaluated *= 1 if run.method == PRETRAINING else run.phases + 1
    same = {"id", "study", "benchmark", "source", "pretrained", "seed", "lr_decay", "augmentation"}
    kind = run.model_dump(
        mode="json", exclude=same | {"source_augmentation", "hyperparameters"}
    ) | {
        "counts": {name: v for name, v in run.hyperparameters if isinstance(v, int)},
        "images": [size, data.train, evaluated, source],
    }
    return Work(
        run=run,
        kind=json.dumps(kind, sort_keys=True),
        network=(run.network, size, run.precision),
        images=(data.train - held_out) // run.phases,
        source_images=getattr(run.hyperparameters, "fisher_images", source),
        evaluated=evaluated,
        data_mib=data_mib,
    )


def pretraining(params: Params, source: str) -> Run:
    """Training on a source that has data, as a run of one task."""
    recipe, data = params.sources[source].pretraining, params.sources[source].data
    assert recipe is not None and data is not None  # `Source` holds this
    values: dict[str, Any] = dict.fromkeys(Run.model_fields) | {
        "id": source,
        "benchmark": PRETRAINING,
        "method": PRETRAINING,
        "data": data,
        "source": source,
        "network": params.sources[source].network,
        "tasks": 1,
        "hyperparameters": Hyperparameters(lr=recipe.lr),
        "epochs": recipe.epochs,
        "batch_size": recipe.batch_size,
        "precision": recipe.precision,
    }
    return Run.model_construct(**values)


def estimated(work: Work, known: list[tuple[Work, Cost]]) -> Cost | None:
    """What a run takes as far as others are known; None where there is nothing to go by.

    It is in proportion to a run of its method on its network; else to one on another network, and
    then to what a run of a third method takes here against there.
    """
    rates = {(w.network, w.run.method): (cost.seconds / w.size, w, cost) for w, cost in known}
    if (work.network, work.run.method) in rates:
        rate, other, cost = rates[work.network, work.run.method]
        basis = f"estimated from {other.run.id}"
        return cost.model_copy(update={"seconds": rate * work.size, "basis": basis})
    for (network, method), (rate, other, _) in rates.items():
        for (here, third), (third_rate, bridge, cost) in rates.items():
            if (method, here) == (work.run.method, work.network) and (network, third) in rates:
                seconds = work.size * rate * third_rate / rates[network, third][0]
                basis = f"estimated from {other.run.id} and {bridge.run.id}"
                return cost.model_copy(update={"seconds": seconds, "basis": basis})
    return None


def batch_size(run: Run) -> int:
    """Stream images in a step."""
    return int(getattr(run.hyperparameters, "batch_size", run.batch_size))


def pixels_mib(images: Splits, size: int) -> float:
    """MiB of a data set's images."""
    return (images.train + images.test) * size**2 * 3 / MIB


def network_mib(network: Network) -> float:
    """The least that a file of a network's weights takes."""
    return VALUES[network.architecture] * (network.width / 64) ** 2 * 4 / MIB
