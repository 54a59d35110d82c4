"""The model cards of the networks that a study's runs start from.

The headings are those of Mitchell et al., Model Cards for Model Reporting (FAT* 2019), as far as
they say something of such a network. All of it is from the checkpoint's own metadata, params.yaml,
the origin of the data and the study's records; what none of them knows is shown as a hole.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from twf.data import origin
from twf.data.registry import ImagesEntry
from twf.files import MODEL_CARDS, checkpoint_file, model_card_file
from twf.results import output
from twf.results.documents.report_summary import Rows
from twf.study import Plan
from twf.study.methods import METHODS
from twf.study.params import Dataset, DrawnData, Params, Source

HOLE = "not recorded"
_BUFFERS = (".running_mean", ".running_var", ".num_batches_tracked")  # no parameters


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint says of itself; no tensor is read, and PyTorch is not needed."""

    sha256: str
    parameters: int  # numbers that training changed
    classes: int
    about: dict[str, Any]  # as `twf.jobs.pretraining` writes it


Networks = dict[str, Checkpoint | str]  # by source; where one cannot be read, why


def read(source: str) -> Checkpoint | str:
    """The checkpoint of a source; where it cannot be read, why."""
    path = checkpoint_file(source)
    if not path.exists():
        return f"no {path}: twf pretrain train {source}"
    try:
        with safe_open(path, framework="numpy") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})["about"])
        classes = shapes["classifier.weight"][0]
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        return f"{path} cannot be read ({error}): twf pretrain train {source}"
    trained = [shape for name, shape in shapes.items() if not name.endswith(_BUFFERS)]
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    return Checkpoint(sha256, sum(map(math.prod, trained)), classes, about)


def write(params: Params, plan: Plan, rows: Rows, networks: Networks) -> None:
    """Write the card of each network of a study; those of others that lie there are removed."""
    for source, network in networks.items():
        values = card(params, plan, rows, source, network)
        output.write_text("model_card.md.j2", values, model_card_file(plan.study, source))
    for path in Path(MODEL_CARDS.format(study=plan.study)).glob("*.md"):
        if path.stem not in networks:
            path.unlink()


def card(
    params: Params, plan: Plan, rows: Rows, name: str, found: Checkpoint | str
) -> dict[str, Any]:
    """What the template needs: lines by label under each heading."""
    source = params.sources[name]
    checkpoint = found if isinstance(found, Checkpoint) else None
    about = checkpoint.about if checkpoint else {}
    dataset = None if source.data is None else params.datasets[source.data]
    whose = origin.of_dataset(dataset) if dataset else origin.of_weights(str(source.weights))
    runs = [run for run in plan.runs.values() if run.source == name and run.pretrained]
    recipe = _recipe(source, about)
    return {
        "source": name,
        "study": plan.study,
        "hole": found if isinstance(found, str) else None,
        "details": _details(name, source, checkpoint),
        "streams": sorted({params.benchmarks[run.benchmark].title for run in runs}),
        "methods": [info.title for m, info in METHODS.items() if m in {run.method for run in runs}],
        "runs": len(runs),
        "started": _started({run.id for run in runs}, rows, checkpoint),
        "data": _data(whose, dataset, about),
        "recipe": recipe,
        "cost": _cost(about),
        "accuracy": accuracy(about),
        "chance": 100 / checkpoint.classes if checkpoint else None,
        "size": dataset.size if dataset else None,
        "trained_here": "Trained by" not in recipe,
        "licence": whose.licence or HOLE,
        "citation": whose.citation,
    }


def _details(name: str, source: Source, checkpoint: Checkpoint | None) -> dict[str, str]:
    network = source.network
    code = checkpoint.about.get("code") if checkpoint else None
    return {
        "File": str(checkpoint_file(name)),
        "SHA-256 of the file": checkpoint.sha256 if checkpoint else HOLE,
        "Network": f"{network.architecture} of width {network.width}",
        "Parameters": f"{checkpoint.parameters:,}" if checkpoint else HOLE,
        "Classes": str(checkpoint.classes) if checkpoint else HOLE,
        "Code": f"twf {code['version']}, commit {code['commit'] or HOLE}" if code else HOLE,
    }


def _data(whose: origin.Origin, dataset: Dataset | None, about: dict[str, Any]) -> dict[str, str]:
    """What the network was trained on, as far as it is known."""
    lines = {"Data": whose.title, "Homepage": whose.homepage or "none"}
    if dataset is None:
        return lines | {"Images": HOLE}
    fingerprint = about.get("data_fingerprint")
    augmentation = dataset.augmentation
    flip = "a random horizontal flip" if augmentation.flip else "no flip"
    return lines | {
        "Images": f"{_count(whose, dataset)}; {dataset.classes} classes; {dataset.size} pixels "
        "along a side",
        "Preparation here": f"a random crop after {augmentation.padding} pixels of zeros around, "
        f"{flip}; normalised with mean {augmentation.mean} and standard deviation "
        f"{augmentation.std}",
        "Fingerprint of the training images": fingerprint or HOLE,
        "Checked": checked(whose, dataset, "train", fingerprint),
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
        return f"number {HOLE}"
    return f"{train:,} for training, {test:,} for testing"


def checked(whose: origin.Origin, dataset: Dataset, split: str, fingerprint: str | None) -> str:
    """Whether a fingerprint is that of the official images."""
    entry = whose.entry if isinstance(whose.entry, ImagesEntry) else None
    expected = entry.fingerprints_at(dataset.size).get(split) if entry else None
    if fingerprint is None:
        return HOLE
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
        return taken | {"Trained by": HOLE}
    if recipe is None:
        recipe = source.pretraining.model_dump() if source.pretraining else {}
    return (
        taken
        | {"Loss and optimizer": "cross-entropy, SGD"}
        | {
            key.replace("lr", "learning rate").replace("_", " ").capitalize(): f"{value}"
            for key, value in recipe.items()
        }
    )


def _cost(about: dict[str, Any]) -> dict[str, str]:
    seconds, versions = about.get("seconds"), about.get("versions") or {}
    return {
        "Time": HOLE if seconds is None else f"{seconds / 3600:.3f} hours",
        "Device": about.get("device") or HOLE,
        "Software": ", ".join(f"{key} {value}" for key, value in versions.items()) or HOLE,
    }


def accuracy(about: dict[str, Any]) -> str:
    """The accuracy on the source's test images."""
    value = about.get("test_accuracy")
    return "not measured" if value is None else f"{value:.2f} %"


def _started(runs: set[str], rows: Rows, checkpoint: Checkpoint | None) -> dict[str, int]:
    """How many of the runs' records say that they started from this file, and from another."""
    found = Counter(
        "this file" if checkpoint and used == checkpoint.sha256 else "another file"
        for run in runs & rows.keys()
        if (used := rows[run]["provenance"].get("inputs", {}).get("checkpoint_sha256"))
    )
    return {place: found[place] for place in ("this file", "another file")}
