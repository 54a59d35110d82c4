"""The reproducibility statement and the model cards: what they say, and say is missing."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file

from twf.data import registry
from twf.files import PARAMS, checkpoint_file, model_card_file, statement_file
from twf.results.documents import statement
from twf.results.runs import Runs
from twf.study import Plan, expand, reading
from twf.study.choices import CHOICES
from twf.study.switches import SWITCHES

ABOUT = {
    "data": "cifar100",
    "pretraining": {"epochs": 200, "lr": 0.1},
    "test_accuracy": 77.25,
    "seconds": 7200.0,
    "code": {"version": "0.1.0", "commit": "abc1234", "method_hash": "00ff"},
    "device": "NVIDIA Something",
    "versions": {"torch": "2.13.0", "cuda": "13.0"},
}


def write_checkpoint(**about: Any) -> str:
    """Write a small network pretrained on CIFAR-100; its SHA-256."""
    tensors = {
        "classifier.weight": np.zeros((100, 4), np.float32),
        "bn1.running_mean": np.zeros(7, np.float32),
    }
    path = checkpoint_file("cifar100")
    path.parent.mkdir(exist_ok=True)
    save_file(tensors, path, metadata={"about": json.dumps(ABOUT | about)})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def made(runs: Runs) -> tuple[str, str]:
    """The statement and the card of its network, made of what is there."""
    statement.write(reading.load(PARAMS), runs)
    return statement_file("small").read_text(), model_card_file("small", "cifar100").read_text()


def provenance(commit: str | None = "abc1234", cuda: bool = False, **inputs: str) -> str:
    versions = {"torch": "2.13.0"} | ({"cuda": "13.0"} if cuda else {})
    code = {"version": "0.1.0", "commit": commit, "method_hash": "00ff"}
    return json.dumps({"parameters": {}, "code": code, "inputs": inputs, "versions": versions})


@pytest.fixture
def plan(make_plan) -> Plan:
    """ER and TwF with two seeds, and a variant that follows the paper in F1."""
    variants = {
        "as-set": {"title": "as set"},
        "f1": {"title": "F1", "methods": ["twf"], "fidelity": {"F1": "paper"}},
        "f9": {"title": "F9", "methods": ["twf"], "fidelity": {"F9": "published"}},
    }
    return make_plan([0, 1], methods=["er", "twf"], buffers=[500], variants=variants)


def test_statement_counts_what_was_done(plan, recorded):
    diverged = {"split-cifar10.twf.500.s0": {"status": "diverged", "reason": "loss is nan"}}
    text, _ = made(recorded(plan, {run: 80.0 for run in plan.runs if ".er." in run} | diverged))
    assert "Of 8 planned runs 2 finished, 1 diverged, 5 missing." in text
    assert "Of the 144 numbers that the paper prints, 4 have been measured." in text
    # of Table 1: ER's and TwF's two protocols with 500; ER's lie above, TwF's diverged
    assert "| 1 | 32 | 4 | 0 |" in text
    assert "| Accuracy: Split CIFAR-10 | 8 | 2 | 1 | 0 | 0 | 5 |" in text
    assert "| split-cifar10.twf.500.s0 | diverged | loss is nan |" in text
    assert "Numbers of the paper that this study does not plan: 140 of 144." in text
    assert "| Accuracy | 0, 1 |" in text


def test_each_switch_says_what_the_study_does(plan, collect):
    text, _ = made(collect(plan))
    lines = dict(
        line[2:].split(" | ", 1) for line in text.splitlines() if re.match(r"\| F\d", line)
    )
    assert list(lines) == list(SWITCHES)
    first = SWITCHES["F1"]
    assert lines["F1"] == (
        f"{first.subject} | published | {first.published} | {first.paper} | "
        "2 paper, 4 published | paper in main.f1 |"
    )
    ninth = SWITCHES["F9"]
    assert (
        f"| paper | {ninth.paper} | {ninth.published} | — | published in main.f9 |" in lines["F9"]
    )


def test_a_study_s_own_switches_are_said_as_set(make_plan, collect):
    make_plan([0], methods=["twf"], buffers=[500], protocols=["class-il"])
    own = "  small:\n    fidelity: {F7: paper, F9: published}"
    PARAMS.write_text(PARAMS.read_text().replace("  small:", own))
    text, _ = made(collect(expand(reading.load(PARAMS), "small")))
    seventh = SWITCHES["F7"]
    assert f"| paper | {seventh.paper} | {seventh.published} | 1 paper | — |" in text
    assert "lambda\\_fp=0.0005 lambda\\_fp\\_replay=0.1 | params.yaml |" in text


def test_what_no_switch_changes_is_said_of_what_the_study_does(plan, collect, make_plan):
    said = {choice.subject: f"| {choice.subject} | {choice.paper} |" for choice in CHOICES}
    text, _ = made(collect(plan))
    assert said["pretraining"] in text
    assert said["strength of the EWC anchor"] not in text
    other = make_plan([0], methods=["derpp-ewc"], benchmarks=["split-cifar100"])
    statement.write(reading.load(PARAMS), collect(other))
    assert said["strength of the EWC anchor"] in statement_file("small").read_text()


def test_hyperparameters_say_where_they_are_from(plan, collect):
    text, _ = made(collect(plan))
    er = "| split-cifar10 | ER | 500 | Class-IL, Task-IL | lr=0.1 | params.yaml |"
    assert er in text
    assert "lambda\\_fp=0.005 lambda\\_fp\\_replay=0.1 | params.yaml |" in text
    assert "lambda\\_fp=0.0005 lambda\\_fp\\_replay=0.1 | variant main.f9 |" in text


def test_hyperparameters_of_a_search_are_named_as_such(make_plan, collect):
    make_plan([0], methods=["er"], buffers=[500], protocols=["class-il"])
    place = {"benchmark": "split-cifar10", "method": "er", "buffer": 500, "protocol": "class-il"}
    Path("best.yaml").write_text(json.dumps([place | {"hyperparameters": {"lr": 0.25}}]))
    study = "  small:\n    best_hyperparameters: best.yaml"
    PARAMS.write_text(PARAMS.read_text().replace("  small:", study))
    plan = expand(reading.load(PARAMS), "small")
    text, _ = made(collect(plan))
    assert "| split-cifar10 | ER | 500 | Class-IL | lr=0.25 | search |" in text


def test_an_untuned_hyperparameter_is_said_to_be_so(make_plan, collect):
    one = {"methods": ["derpp-ewc"], "benchmarks": ["split-cifar100"], "protocols": ["class-il"]}
    plan = make_plan([0], **one, buffers=[2000])
    statement.write(reading.load(PARAMS), collect(plan))
    text = statement_file("small").read_text()
    (row,) = [line for line in text.splitlines() if "fisher\\_images" in line]
    assert row.endswith("| params.yaml; untuned: lambda\\_ewc of DER++ with EWC |")


def test_hours_are_apart_for_gpus_and_cpus(plan, recorded):
    gpu = {"device": "NVIDIA H", "provenance": provenance(cuda=True)}
    records = [
        gpu | {"seconds": 3600.0},
        gpu | {"seconds": 1800.0, "status": "diverged"},
        {"seconds": 7200.0},
        {"seconds": 9e9, "digest": "of something else"},
    ]
    write_checkpoint()
    text, _ = made(recorded(plan, dict(zip(plan.runs, records, strict=False))))
    assert "| GPU | NVIDIA H | 2 | 1.50 |" in text
    assert "**GPU hours of all runs**: 1.50" in text
    assert "**CPU hours of all runs**: 2.00" in text
    assert "**Pretraining on cifar100**: 2.000 hours on NVIDIA Something" in text


def test_only_a_commit_is_to_be_checked_out(plan, recorded):
    commits = ["abc1234", "def5678+", "abc1234; rm -rf /", None]
    records = [{"provenance": provenance(commit)} for commit in commits]
    text, _ = made(recorded(plan, dict(zip(plan.runs, records, strict=False))))
    assert [line for line in text.splitlines() if line.startswith("git checkout")] == [
        "git checkout abc1234"
    ]
    assert "**Some records are of code that no commit has: def5678+.**" in text
    assert "**Some records are of code that no commit has.**" in text


def test_card_says_what_the_checkpoint_says(plan, recorded):
    sha256 = write_checkpoint()
    starts = [{"provenance": provenance(checkpoint_sha256=sha)} for sha in (sha256, "other")]
    text, card = made(recorded(plan, dict(zip(plan.runs, starts, strict=False))))
    for line in (
        f"**SHA-256 of the file**: {sha256}",
        "**Parameters**: 400",  # running statistics are none
        "**Classes**: 100",
        "**Code**: twf 0.1.0, commit abc1234",
        "**Epochs**: 200",
        "**Accuracy**: 77.25 % (by chance 1.00 %)",
        "**Records that started from this file**: 1",
        "**Records that started from another file: 1.**",
        "- none stated; the authors ask to cite the technical report",
    ):
        assert line in card, line
    assert "@techreport{krizhevsky2009learning," in card
    assert f"| [cifar100](model-cards/cifar100.md) | 77.25 % | {sha256} |" in text


def test_what_no_file_says_is_not_recorded(plan, recorded):
    made_by = {"provenance": provenance(checkpoint_sha256="any")}
    runs = recorded(plan, dict.fromkeys(plan.runs, made_by))
    text, card = made(runs)
    assert "from another file" not in card and "not compared with the file" in card
    for page in (text, card):
        assert "no checkpoints/cifar100.safetensors: twf pretrain train cifar100" in page
    assert "**Accuracy**: not measured" in card
    assert "**Pretraining on cifar100**: *not recorded*" in text
    checkpoint_file("cifar100").parent.mkdir()
    checkpoint_file("cifar100").write_bytes(b"torn")
    assert "checkpoints/cifar100.safetensors cannot be read" in made(runs)[1]


def test_weights_speak_for_the_network_that_is_to_be_made_from_them(plan, recorded):
    """As where git has both records and weights, and nothing has been made yet."""
    write_checkpoint()
    values = yaml.safe_load(PARAMS.read_text())
    values["sources"]["cifar100"]["weights"] = "shared.safetensors"
    PARAMS.write_text(yaml.safe_dump(values, sort_keys=False))
    checkpoint_file("cifar100").rename("shared.safetensors")
    made_by = {"provenance": provenance(checkpoint_sha256="any")}
    text, card = made(recorded(plan, dict.fromkeys(plan.runs, made_by)))
    for line in (
        "no checkpoints/cifar100.safetensors: twf pretrain train cifar100",
        "**SHA-256 of the file**: not recorded",
        "not compared with the file",
        "**Weights**: shared.safetensors",
        "**Parameters**: 400",
        "**Epochs**: 200",
        "**Accuracy**: 77.25 % (by chance 1.00 %)",
    ):
        assert line in card, line
    assert "| [cifar100](model-cards/cifar100.md) | 77.25 % | not recorded |" in text
    Path("shared.safetensors").write_bytes(b"torn")
    assert "**Accuracy**: not measured" in made(recorded(plan))[1]


@pytest.mark.parametrize(
    ("about", "said", "unsaid"),
    [
        (
            {"weights": "mine.pth", "pretraining": None, "test_accuracy": None},
            ["**Weights**: mine.pth", "**Trained by**: not recorded"],
            "**Epochs**",
        ),
        (  # exported here
            {"weights": "shared.safetensors"},
            ["**Weights**: shared.safetensors", "**SHA-256 of them**: f00d", "**Epochs**: 200"],
            "Trained by",
        ),
    ],
)
def test_weights_keep_the_recipe_that_they_say(plan, collect, about, said, unsaid):
    write_checkpoint(**about, weights_sha256="f00d")
    _, card = made(collect(plan))
    assert [line for line in said if line not in card] == []
    assert unsaid not in card


def test_fingerprints_are_held_to_the_official_ones(plan, recorded):
    official = registry.images_entry("cifar10").fingerprints
    right = {"train_fingerprint": str(official.train), "test_fingerprint": "d00d"}
    records = {"split-cifar10.er.500.s0": {"provenance": provenance(**right)}}
    text, _ = made(recorded(plan, records))
    assert f"| cifar10 | train | {official.train} | the official images | 1 |" in text
    assert f"| cifar10 | test | d00d | NOT the official: {official.test} | 1 |" in text
    assert "| cifar100 | train | not recorded | not recorded | 0 |" in text


def test_cards_of_other_sources_are_removed(plan, collect):
    other = model_card_file("small", "letters")
    other.parent.mkdir(parents=True)
    other.write_text("of another source")
    made(collect(plan))
    assert [path.name for path in other.parent.iterdir()] == ["cifar100.md"]


def test_same_records_give_the_same_bytes(plan, recorded):
    write_checkpoint()
    assert made(recorded(plan)) == made(recorded(plan))
