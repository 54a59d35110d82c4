"""The continual-learning loop: step, schedule, tasks, randomness, and loss traces."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import spy
from torch import nn

from twf.errors import UserError
from twf.learning import loop, methods, tasks
from twf.learning.methods import base
from twf.learning.methods.base import Batch, Step
from twf.learning.models.resnet import ResNet
from twf.learning.randomness import CPU, seeded
from twf.learning.sgd import sgd_step
from twf.study.methods import METHODS
from twf.study.params import LrDecay

TRACES = Path(__file__).parent / "traces.json"

# The step and the schedule


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.3)])
def test_a_step_is_that_of_torchs_sgd(momentum, weight_decay):
    def network() -> nn.Module:
        with seeded(0, "step"):
            return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3), nn.Linear(3, 3))

    ours, theirs = network(), network()
    used = 3 if momentum == 0.0 else 4  # the last layer takes no part: its gradients are None
    velocity = [torch.zeros_like(p) for p in ours.parameters()] if momentum else None
    optimizer = torch.optim.SGD(theirs.parameters(), 1.0, momentum, weight_decay=weight_decay)
    for i, rate in enumerate([0.5, 0.1, 0.01, 0.3]):
        inputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(i))
        for net in (ours, theirs):
            net[:used](inputs).square().sum().backward()
        sgd_step(list(ours.parameters()), rate, velocity, weight_decay=weight_decay)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b)
            assert a.grad is None, "the next backward pass must not add to this one's"


def test_the_rate_steps_down_at_the_benchmarks_epochs(train, monkeypatch):
    rates: list[float] = []
    spy(monkeypatch, base, "sgd_step", lambda _, parameters, rate: rates.append(rate))
    decay = LrDecay(factor=0.1, epochs=[1, 3])
    train("finetune", epochs=4, hyperparameters={"lr": 0.2}, lr_decay=decay)  # 2 steps an epoch
    assert rates == pytest.approx(([0.2] * 2 + [0.02] * 4 + [0.002] * 2) * 2)


# Tasks, and images held out for validation


def test_tasks_have_equally_many_classes_in_their_order():
    labels = torch.tensor([3, 1, 2, 2, 0, 0])
    parts = [part.tolist() for part in tasks.split(labels, tasks=2, classes=4)]
    assert parts == [[1, 4, 5], [0, 2, 3]]


def test_accuracies_are_of_the_test_images_each_under_its_protocol(
    train, monkeypatch, tiny_dataset
):
    calls: list[Any] = []
    spy(monkeypatch, loop, "accuracy_per_task", lambda made, *given: calls.append((made, given)))
    outcome = train("finetune", epochs=1)
    class_il = [outcome.initial_class_il, *outcome.accuracy_class_il]
    task_il = [outcome.initial_task_il, *outcome.accuracy_task_il]
    assert [made for made, _ in calls] == list(zip(class_il, task_il, strict=True))
    for _, (_, _, images, labels, *_) in calls:
        assert torch.equal(images.permute(0, 2, 3, 1), tiny_dataset.test_images)
        assert torch.equal(labels, tiny_dataset.test_labels)


def test_a_network_that_the_last_update_loses_has_diverged(train, monkeypatch):
    """No loss is computed after it, and NaN is class 0, which is right at times."""

    def lose(_: None, method: Any, task: Any) -> None:
        if task.number == 1:
            method.learner.network.classifier.bias.data[0] = math.nan

    spy(monkeypatch, methods.base.Method, "end_task", lose)
    outcome = train("finetune")
    assert outcome.reason == "classifier.bias not finite after task 1"
    assert len(outcome.accuracy_class_il) == 1 and outcome.status == "diverged"


@given(st.integers(2, 300), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_held_out_and_kept_images_are_disjoint_and_together_all(count, share, seed):
    labels = torch.zeros(count, dtype=torch.int64)
    if not 0 < round(share * count) < count:
        with pytest.raises(UserError, match=f"of {count} training images"):
            tasks.hold_out(labels, share, seed)
        return
    train, held_out = tasks.hold_out(labels, share, seed)
    assert len(held_out) == round(share * count)
    assert all(part.tolist() == sorted(part.tolist()) for part in (train, held_out))
    assert sorted(train.tolist() + held_out.tolist()) == list(range(count))


def test_the_seed_alone_decides_what_is_held_out():
    labels = torch.arange(100)
    _, held_out = tasks.hold_out(labels, 0.1, seed=0)
    assert held_out.tolist() == [5, 16, 20, 36, 52, 72, 82, 90, 93, 94]  # on every machine
    assert not torch.equal(tasks.hold_out(labels, 0.1, seed=1)[1], held_out)


def test_a_search_evaluates_on_training_images_that_it_does_not_train_on(tiny_dataset):
    searched = tasks.without_test_set(tiny_dataset, 0.25, seed=0)
    known, trained, evaluated = (
        {image.numpy().tobytes() for image in images}
        for images in (tiny_dataset.train_images, searched.train_images, searched.test_images)
    )
    assert trained | evaluated == known and not trained & evaluated
    assert len(searched.test_labels) == 11


# What a run is made of


def test_a_loss_in_the_history_is_its_mean_over_the_epochs_steps(train, monkeypatch):
    values = iter([1.0, 3.0, 10.0, 20.0])

    def loss(self: Any, batch: Batch) -> Step:
        weight = next(self.learner.network.parameters())
        return Step({"a": weight.sum() * 0 + next(values), "b": torch.tensor(0.5)})

    monkeypatch.setattr("twf.learning.methods.finetune.Finetune.loss", loss)
    outcome = train("joint", epochs=1, batch_size=11)
    assert outcome.history[0]["terms"] == {"a": pytest.approx(8.5), "b": pytest.approx(0.5)}
    assert outcome.history[0]["loss"] == pytest.approx(9.0)


def test_evaluation_is_in_evaluation_mode_and_training_in_training_mode(
    train, monkeypatch, tiny_checkpoint
):
    """And the checkpoint is left as it was."""
    training: list[bool] = []
    own = nn.Dropout()  # a module that a method has beside the network
    monkeypatch.setattr(base.Method, "modules", lambda method: [method.learner.network, own])
    before = {name: tensor.clone() for name, tensor in tiny_checkpoint.tensors.items()}
    spy(monkeypatch, ResNet, "layers", lambda _, n, __: training.extend([n.training, own.training]))
    train("finetune", epochs=1)
    modes = [False] + [True, True, False] * 2
    assert training == [mode for mode in modes for _ in ("network", "own")]
    torch.testing.assert_close(tiny_checkpoint.tensors, before, rtol=0, atol=0)


def test_the_classifier_is_fresh_and_the_rest_is_the_checkpoint(
    tiny_run, tiny_dataset, tiny_checkpoint
):
    weights = []
    for seed in (0, 0, 1):
        run = tiny_run("finetune", seed=seed)
        learner = loop.make_learner(run, tiny_dataset, None, tiny_checkpoint.tensors, CPU)
        state = learner.network.state_dict()
        for name, tensor in tiny_checkpoint.tensors.items():
            assert name.startswith("classifier.") or torch.equal(state[name], tensor)
        weights.append(state["classifier.weight"])
    assert weights[0].shape == (4, 32)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_methods_own_batch_size_is_the_learners(tiny_run, tiny_dataset, tiny_checkpoint):
    run = tiny_run("co2l", hyperparameters={"batch_size": 5})
    learner = loop.make_learner(run, tiny_dataset, None, tiny_checkpoint.tensors, CPU)
    assert learner.batch_size == 5


def test_a_run_from_scratch_is_not_pretrained_and_its_source_is(
    tiny_run, tiny_dataset, tiny_source, tiny_checkpoint
):
    run, weights = tiny_run("derpp-ewc", pretrained=False), tiny_checkpoint.tensors
    learner = loop.make_learner(run, tiny_dataset, tiny_source, weights, CPU)
    assert not torch.equal(learner.network.conv1.weight, weights["conv1.weight"])
    assert torch.equal(learner.source.network.conv1.weight, weights["conv1.weight"])


def test_a_probed_run_learns_the_same_and_says_how_open_its_gates_are(train, whole, tiny_run):
    probed = {"probes": True, "source_data": "origin"}
    probed["source_augmentation"] = tiny_run("derpp-pretraining").source_augmentation
    outcomes = {name: train(name, **probed) for name in ("twf", "er")}
    for name, outcome in outcomes.items():
        assert outcome.history == whole(name).history
        assert outcome.accuracy_class_il == whole(name).accuracy_class_il
        assert len(outcome.cka) == len(outcome.accuracy_class_il) + 1
        assert outcome.cka[0] == pytest.approx([1.0] * 5)
    opened = torch.tensor(outcomes["twf"].gates_open)
    assert opened.shape == (3, 5)  # before training and after each task, of each layer
    assert ((opened > 0) & (opened < 100)).all() and not opened[0].equal(opened[2])
    assert outcomes["er"].gates_open == []


# Randomness


def test_initialisation_has_a_seed_of_its_own_and_leaves_torchs_generator_alone():
    weights = []
    for seed, purpose in ((0, "gates"), (0, "gates"), (1, "gates"), (0, "classifier")):
        torch.rand(5)
        before = torch.random.get_rng_state()
        with seeded(seed, purpose):
            weights.append(nn.Linear(4, 4).weight)
        assert torch.equal(torch.random.get_rng_state(), before)
    first, *others = weights
    assert [torch.equal(first, other) for other in others] == [True, False, False]


def test_methods_go_through_the_images_in_the_same_order_and_another_seed_in_another(
    train, monkeypatch
):
    """Though some draw replay and gates between the batches, and others do not."""

    def order(name: str, **changes: Any) -> list[tuple[int, ...]]:
        seen: list[tuple[int, ...]] = []
        with monkeypatch.context() as patch:
            tell = lambda _, __, batch: seen.append((*batch.positions.tolist(),))  # noqa: E731
            spy(patch, methods.load(name), "loss", tell)
            train(name, **changes)
        return seen

    first = order("finetune")
    assert order("er") == order("twf") == first
    assert len(set(first)) == len(first)  # anew in each epoch
    assert not set(first) & set(order("finetune", seed=1))


# Divergence


def test_a_loss_that_is_not_finite_ends_the_run_and_names_term_and_task(train, monkeypatch):
    """In the second task's second epoch the replayed logits' term is not a number."""
    steps = []

    def poison(made: Step, *_: Any) -> None:
        steps.append(made)
        if len(steps) == 7:  # two steps an epoch, two epochs a task
            made.terms["replay_logits"] = made.terms["replay_logits"] * math.nan

    spy(monkeypatch, methods.load("derpp"), "loss", poison)
    outcome = train("derpp")
    assert outcome.status == "diverged"
    assert "replay_logits" in outcome.reason and "task 1" in outcome.reason
    assert "step 0 of epoch 1" in outcome.reason
    assert len(steps) == 8  # it goes on to the end of the epoch, as nothing looks before
    assert len(outcome.accuracy_class_il) == len(outcome.accuracy_task_il) == 1
    assert math.isnan(outcome.history[-1]["loss"])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_survives_its_own_divergence(train, name):
    outcome = train(name, hyperparameters={"lr": 1e30})
    assert outcome.status == "diverged"
    assert "not finite in step 1 of epoch 0 of task 0" in outcome.reason
    assert outcome.accuracy_class_il == []


# Traces


@pytest.mark.usefixtures("deep", "float64")
@pytest.mark.parametrize("name", METHODS)
def test_losses_follow_the_kept_traces(train, name):
    """Each loss term over the first two epochs of two tasks is what it was when it was kept.

    In double precision: in single, TwF's terms move by per cents within these steps where the
    weights it starts from move by 1e-7 of themselves, so a trace would hold rounding as well.
    A change that moves a trace changes results: say in its commit why it must. To keep new traces,
    delete `tests/learning/traces.json` and run this test on a CPU: it writes the file anew, and
    fails once for each method. A new method's trace is made in the same way.
    """
    found = {
        f"task {entry['phase']}, epoch {entry['epoch']}": {
            term: float(f"{value:.6e}") for term, value in sorted(entry["terms"].items())
        }
        for entry in train(name).history
    }
    kept = json.loads(TRACES.read_text()) if TRACES.exists() else {}
    if name not in kept:
        kept[name] = found
        ordered = {method: kept[method] for method in METHODS if method in kept}
        TRACES.write_text(json.dumps(ordered, indent=1) + "\n")
        pytest.fail(f"{name} was missing in {TRACES} and is written anew; look at what changed")
    assert kept.keys() <= METHODS.keys()
    assert kept[name].keys() == found.keys()
    for when, terms in kept[name].items():
        assert found[when] == pytest.approx(terms, rel=1e-5, abs=1e-8), when


@pytest.mark.parametrize("size", [17, 34])
def test_twf_learns_from_images_of_any_size(tiny_dataset, train, size):
    """Also where a layer's map, whose gates are stored at half its size, has an odd side."""
    wide = {
        name: getattr(tiny_dataset, name).repeat(1, 3, 3, 1)[:, :size, :size].contiguous()
        for name in ("train_images", "test_images")
    }
    outcome = train("twf", dataset=dataclasses.replace(tiny_dataset, **wide), epochs=1)
    assert outcome.status == "finished"
    assert outcome.history[-1]["terms"]["mask_replay"] > 0
