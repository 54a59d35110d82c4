"""The model cards of the networks that a study's runs start from.

The headings are those of Mitchell et al., Model Cards for Model Reporting (FAT* 2019), as far as
they say something of such a network. All of it is from the metadata of the checkpoint, or of the
weights that it is made from, params.yaml, the origin of the data and the study's records; what none
of them says is shown as not recorded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from twf.data import origin
from twf.data.registry import ImagesEntry
from twf.files import MODEL_CARDS, checkpoint_file, model_card_file, sha256
from twf.results import output
from twf.results.documents.summary import NOT_RECORDED
from twf.results.runs import Runs
from twf.study.methods import METHODS
from twf.study.params import Dataset, DrawnData, Params, Source

_BUFFERS = (".running_mean", ".running_var", ".num_batches_tracked")  # no parameters


@dataclass(frozen=True)
class Network:
    """What the file of a pretrained network says of itself; None where it cannot be read."""

    source: str
    problem: str | None = None  # why there is no checkpoint, and the command that makes it
    sha256: str | None = None
    parameters: int | None = None  # numbers that training changed
    classes: int | None = None
    about: dict[str, Any] = field(default_factory=dict)  # as `twf.jobs.pretraining` writes it

    @property
    def accuracy(self) -> str:
        """The accuracy on the source's test images."""
        value = self.about.get("test_accuracy")
        return "not measured" if value is None else f"{value:.2f} %"


def read(name: str, source: Source) -> Network:
    """The network of a source; no tensor is read, and PyTorch is not needed.

    Where it has not been made, but the weights that it is made from are there, what they say.
    """
    path, remedy = checkpoint_file(name), f"twf pretrain train {name}"
    if path.exists():
        return _read(name, path, remedy)
    missing = Network(name, f"no {path}: {remedy}")
    if source.weights is None or not Path(source.weights).exists():
        return missing
    given = _read(name, Path(source.weights), remedy)
    return missing if given.problem else replace(given, problem=missing.problem, sha256=None)


def _read(name: str, path: Path, remedy: str) -> Network:
    try:
        with safe_open(path, framework="numpy") as file:
            shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})["about"])
        classes = shapes["classifier.weight"][0]
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        return Network(name, f"{path} cannot be read ({error}): {remedy}")
    trained = [shape for key, shape in shapes.items() if not key.endswith(_BUFFERS)]
    return Network(name, None, sha256(path), sum(map(math.prod, trained)), classes, about)


def write(params: Params, runs: Runs, networks: Iterable[Network]) -> None:
    """Write the card of each network of a study; those of others that lie there are removed."""
    study, cards = runs.plan.study, set()
    for network in networks:
        cards.add(path := model_card_file(study, network.source))
        output.write_text("model_card.md.j2", card(params, runs, network), path)
    for path in Path(MODEL_CARDS.format(study=study)).glob("*.md"):
        if path not in cards:
            path.unlink()


def card(params: Params, runs: Runs, network: Network) -> dict[str, Any]:
    """What the template needs."""
    source, about = params.sources[network.source], network.about
    dataset = None if source.data is None else params.datasets[source.data]
    whose = origin.of_dataset(dataset) if dataset else origin.of_weights(str(source.weights))
    starting = [
        outcome
        for outcome in runs.outcomes.values()
        if outcome.run.source == network.source and outcome.run.pretrained
    ]
    versions = about.get("versions") or {}
    methods = {outcome.run.method for outcome in starting}
    used = [outcome.provenance.get("inputs", {}).get("checkpoint_sha256") for outcome in starting]
    return {
        "study": runs.plan.study,
        "network": network,
        "file": checkpoint_file(network.source),
        "source": source,
        "dataset": dataset,
        "origin": whose,
        "images": dataset and _count(whose, dataset),
        "checked": dataset and checked(whose, dataset, "train", about.get("data_fingerprint")),
        "streams": sorted({params.benchmarks[o.run.benchmark].title for o in starting}),
        "methods": [info.title for method, info in METHODS.items() if method in methods],
        "runs": len(starting),
        "from_this": sum(sha == network.sha256 for sha in used if sha),
        "from_another": sum(sha != network.sha256 for sha in used if sha),
        "recipe": _recipe(source, about),
        "versions": ", ".join(f"{key} {value}" for key, value in versions.items()) or NOT_RECORDED,
        "unknown": NOT_RECORDED,
    }


def _count(whose: origin.Origin, dataset: Dataset) -> str:
    """How many images there are, where the registry or params.yaml says."""
    if isinstance(whose.entry, ImagesEntry):
        train, test = whose.entry.images.train, whose.entry.images.test
    elif isinstance(dataset, DrawnData):
        train, test = (
            dataset.classes * n for n in (dataset.train_per_class, dataset.test_per_class)
        )
    else:
        return f"number {NOT_RECORDED}"
    return f"{train:,} for training, {test:,} for testing"


def checked(whose: origin.Origin, dataset: Dataset, split: str, fingerprint: str | None) -> str:
    """Whether a fingerprint is that of the official images."""
    entry = whose.entry if isinstance(whose.entry, ImagesEntry) else None
    expected = entry.fingerprints_at(dataset.size).get(split) if entry else None
    if fingerprint is None:
        return NOT_RECORDED
    if expected is None:
        return "no official fingerprint to compare with"
    return "the official images" if fingerprint == expected else f"NOT the official: {expected}"


def _recipe(source: Source, about: dict[str, Any]) -> dict[str, str]:
    """How it was trained, by the file itself; by params.yaml where that has not been made."""
    taken: dict[str, str] = {}
    if "weights" in about:
        taken = {"Weights": str(about["weights"]), "SHA-256 of them": about["weights_sha256"]}
    elif source.weights is not None:
        taken = {"Weights": source.weights}
    recipe = about.get("pretraining")  # exported weights have theirs
    if recipe is None and taken:
        return taken | {"Trained by": NOT_RECORDED}
    if recipe is None:
        recipe = source.pretraining.model_dump() if source.pretraining else {}
    names = {key: key.replace("lr", "learning rate").replace("_", " ") for key in recipe}
    lines = {names[key].capitalize(): f"{value}" for key, value in recipe.items()}
    return taken | {"Loss and optimizer": "cross-entropy, SGD"} | lines
