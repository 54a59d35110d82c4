"""The methods on small real networks: what they minimise, store and leave alone."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from spying import spy
from torch import Tensor

from twf.errors import UserError
from twf.learning import loop
from twf.learning.augmentation import Augment
from twf.learning.methods import make, oewc
from twf.learning.methods.base import Batch, Method, Task
from twf.learning.methods.er_ace import competing
from twf.learning.models.gates import by_layer
from twf.learning.models.resnet import ResNet
from twf.learning.sgd import sgd_step
from twf.learning.state import capture, flatten
from twf.learning.step import Plain
from twf.study.methods import METHODS
from twf.study.params import Augmentation

CPU = torch.device("cpu")
TASKS, PER_TASK, BATCH, BUFFER, SIDE = 3, 2, 8, 21, 16
CLASSES = TASKS * PER_TASK


@pytest.fixture
def method(tiny_run, tiny_dataset, tiny_source, tiny_checkpoint) -> Callable[..., Method[Any]]:
    """`method(name, **hyperparameters)`: ready for its first task, in training mode."""

    def make_one(
        name: str,
        *,
        padding: int = 2,
        flip: bool = True,
        fidelity: dict[str, str] | None = None,
        buffer: int | None = BUFFER,
        **changes: float,
    ) -> Any:
        run = tiny_run(
            name,
            classes=CLASSES,
            tasks=TASKS,
            epochs=1,
            batch_size=BATCH,
            buffer=buffer if METHODS[name].rehearsal else None,
            augmentation=Augmentation(padding=padding, flip=flip, mean=[0.5] * 3, std=[0.25] * 3),
            fidelity=dict.fromkeys(METHODS[name].switches, "published") | (fidelity or {}),
            hyperparameters=changes,
        )
        source = tiny_source if METHODS[name].source_data else None
        learner = loop.make_learner(run, tiny_dataset, source, tiny_checkpoint.tensors, CPU)
        made = make(name, learner, run.hyperparameters)
        for module in made.modules():
            module.train()
        return made

    return make_one


def task_of(number: int, count: int = 2 * BATCH) -> Task:
    """A task's images: random, all different, their classes in turn."""
    generator = torch.Generator().manual_seed(number)
    images = torch.randint(0, 256, (count, 3, SIDE, SIDE), generator=generator)
    labels = PER_TASK * number + torch.arange(count) % PER_TASK
    return Task(number, images.to(torch.uint8), labels)


def batches(task: Task) -> list[Batch]:
    positions = torch.arange(len(task.labels)).split(BATCH)
    return [Batch(task.images[p], task.labels[p], p) for p in positions]


def step(method: Method[Any], batch: Batch, rate: float = 0.05) -> dict[str, float]:
    """What the loop does of one batch."""
    made = method.loss(batch)
    sum(made.terms.values()).backward()
    sgd_step([p for module in method.modules() for p in module.parameters()], rate)
    if method.buffer is not None:
        method.buffer.insert(**made.store)
    return {name: value.item() for name, value in made.terms.items()}


def begin(method: Method[Any], number: int, count: int = 2 * BATCH) -> Task:
    """Begin a task as the loop does."""
    for module in method.modules():
        module.train()
    task = task_of(number, count)
    method.begin_task(task)
    return task


def learn(method: Method[Any], numbers: range, end_last: bool = True) -> None:
    """Go through tasks as the loop does, with one epoch each."""
    for number in numbers:
        task = begin(method, number)
        for batch in batches(task):
            step(method, batch)
        if end_last or number != numbers[-1]:
            method.end_task(task)


@pytest.mark.parametrize("name", METHODS)
def test_steps_lower_a_methods_own_loss_on_a_fixed_batch(method, name):
    made = method(name, padding=0, flip=False)
    fixed = batches(begin(made, 0))[0]
    losses = [sum(step(made, fixed).values()) for _ in range(12)]
    # the first step of rehearsal has nothing to replay yet
    assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[1:4])  # a smoothed loss has a floor


@pytest.mark.parametrize("name", [name for name, of in METHODS.items() if of.without_buffer])
def test_a_method_that_can_learn_without_a_buffer_replays_nothing(method, name):
    made = method(name, buffer=None)
    learn(made, range(1))
    terms = step(made, batches(begin(made, 1))[0])
    assert np.isfinite(list(terms.values())).all()
    assert not any(value for term, value in terms.items() if "replay" in term)


@pytest.mark.parametrize("name", METHODS)
def test_a_loss_changes_no_parameter_and_a_step_trains_every_module_that_a_method_names(
    method, name
):
    made = method(name)
    learn(made, range(1))
    batch = batches(begin(made, 1))[0]
    stored = None if made.buffer is None else int(made.buffer.seen)
    parameters = [[*module.parameters()] for module in made.modules()]
    before = [[p.detach().clone() for p in each] for each in parameters]

    def changed() -> list[bool]:
        return [
            not all(map(torch.equal, now, then))
            for now, then in zip(parameters, before, strict=True)
        ]

    made.loss(batch)  # to store is the loop's to do, after the update
    assert not any(changed())
    assert made.buffer is None or int(made.buffer.seen) == stored
    step(made, batch)
    assert all(changed())


@pytest.mark.parametrize("name", ["er", "er-ace", "derpp", "derpp-ewc", "twf"])
def test_rehearsal_keeps_the_streams_raw_images_with_their_labels(method, name):
    made = method(name)
    learn(made, range(2))
    filled = int(made.reservoir.filled)
    images, labels = (made.reservoir.rows[n][:filled] for n in ("images", "labels"))
    assert filled == BUFFER and images.dtype == torch.uint8
    stream = {
        bytes(image.numpy()): int(label)
        for task in (task_of(0), task_of(1))
        for image, label in zip(task.images, task.labels, strict=True)
    }
    kept = [bytes(image.numpy()) for image in images]
    assert len(set(kept)) == BUFFER  # each image was offered once
    assert [stream[image] for image in kept] == labels.tolist()
    assert set(labels.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("finetune", [BATCH]),
        ("er", [2 * BATCH]),  # stream and replay together
        ("derpp", [BATCH, BATCH, BATCH]),  # stream, replay for logits, replay for labels
        ("twf", [2 * BATCH, 2 * BATCH]),  # student and sibling, stream and replay together
    ],
)
def test_what_shares_a_pass_shares_its_batch_statistics(method, monkeypatch, name, sizes):
    made = method(name)
    made.begin_task(task_of(0))
    step(made, batches(task_of(0))[0])
    seen = []
    spy(monkeypatch, ResNet, "layers", lambda _, network, images: seen.append(len(images)))
    made.loss(batches(task_of(0))[1])
    assert seen == sizes


def test_derpps_two_replays_are_drawn_apart(method, monkeypatch):
    made = method("derpp")
    learn(made, range(2))
    drawn = []
    spy(monkeypatch, made.reservoir, "draw", lambda rows, _: drawn.append(rows))
    made.loss(batches(task_of(1))[0])
    first, second = drawn
    assert not torch.equal(first["images"], second["images"])


@pytest.mark.parametrize("name", ["derpp", "twf"])
def test_stored_logits_are_those_of_the_step_that_offered_the_image(method, monkeypatch, name):
    made = method(name)
    made.begin_task(task_of(0))
    seen = []
    spy(monkeypatch, ResNet, "classify", lambda logits, *_: seen.append(logits))
    first, second = batches(task_of(0))
    step(made, first)
    of_first = seen[0].detach().clone()  # the stream comes first, in its order
    step(made, second)
    assert torch.equal(made.reservoir.rows["logits"][:BATCH], of_first)
    assert not made.reservoir.rows["logits"].requires_grad


@pytest.mark.parametrize("name", ["joint", "er"])
def test_joint_has_one_phase_with_everything_and_keeps_its_last_batch(method, monkeypatch, name):
    made, tasks = method(name), [task_of(number, count=BATCH + 3) for number in range(2)]
    phases = made.phases(tasks)
    if name == "joint":
        assert torch.equal(phases[0].images, torch.cat([task.images for task in tasks]))
        assert torch.equal(phases[0].labels, torch.cat([task.labels for task in tasks]))
    else:
        assert phases == tasks
    made.begin_task(phases[0])
    seen = []
    spy(monkeypatch, made, "loss", lambda _, batch: seen.append(batch.positions.tolist()))
    steps = Plain(made)
    steps.begin(phases[0].images, phases[0].labels)
    loop._epoch(steps, loop.Place(), len(phases[0].images), lambda: None)
    sizes = [len(positions) for positions in seen]
    assert sizes == ([BATCH, BATCH, 6] if name == "joint" else [BATCH])
    assert len({p for positions in seen for p in positions}) == sum(sizes), "each once an epoch"


# TwF


@pytest.fixture
def twf(method) -> Any:
    return method("twf")


def test_twfs_sibling_keeps_its_parameters_and_is_the_pretrained_network(twf):
    start = {name: t.clone() for name, t in twf.learner.network.state_dict().items()}
    sibling = twf.propagation.sibling
    assert all(torch.equal(t, start[name]) for name, t in sibling.state_dict().items())
    learn(twf, range(2))
    for name, parameter in sibling.named_parameters():
        assert torch.equal(parameter, start[name]) and not parameter.requires_grad
    named = {id(p) for module in twf.modules() for p in module.parameters()}
    assert not named & {id(p) for p in sibling.parameters()}


def test_a_state_of_twf_leaves_out_what_its_sibling_never_changes(twf):
    learn(twf, range(2))
    tensors: dict[str, Tensor] = {}
    saved = flatten(capture(twf), tensors)["method"]["propagation"]["parameters"]
    sibling = {name for name in saved if name.startswith("sibling.")}
    assert sibling and all("running" in name or "num_batches" in name for name in sibling)


@pytest.mark.parametrize("stream_loss", ["published", "paper"])
def test_twf_whose_propagation_has_no_weight_learns_the_same_bits_without_it(method, stream_loss):
    made = []
    for skips in (True, False):
        weight = 0.0 if skips else 0.5
        one = method("twf", lambda_fp=weight, fidelity={"F6": stream_loss})
        one.weights = dict.fromkeys(one.weights, 0.0)
        assert (one.propagation is None) == skips
        learn(one, range(3))
        made.append(one)
    without, with_it = (one.learner.network.state_dict() for one in made)
    assert all(torch.equal(tensor, with_it[name]) for name, tensor in without.items())
    for name, rows in made[0].reservoir.rows.items():
        assert torch.equal(rows[:-1], made[1].reservoir.rows[name][:-1]), name
    assert "masks" not in made[0].reservoir.rows


@pytest.mark.parametrize(("switch", "skips"), [("published", True), ("paper", False)])
def test_twf_skips_propagation_only_where_no_term_has_a_weight(method, switch, skips):
    """F14: as published, lambda_FP multiplies the other two."""
    made = method("twf", lambda_fp=0.0, lambda_diversity=0.1, fidelity={"F14": switch})
    assert (made.propagation is None) == skips


@pytest.mark.parametrize("value", ["published", "paper"])
def test_f1_the_published_sibling_uses_batch_statistics_from_the_second_task_on(
    method, monkeypatch, value
):
    """Evaluation mode in the first task, and at each task's end."""
    twf = method("twf", fidelity={"F1": value})
    modes: dict[int, set[bool]] = {}

    def tell(_: Any, network: ResNet, images: Tensor) -> None:
        if network is twf.propagation.sibling:
            modes.setdefault(twf.task, set()).add(network.bn1.training)

    spy(monkeypatch, ResNet, "layers", tell)
    statistics = twf.propagation.sibling.bn1.running_mean.clone()
    learn(twf, range(1))
    assert torch.equal(twf.propagation.sibling.bn1.running_mean, statistics)
    learn(twf, range(1, 3), end_last=False)
    same = torch.equal(twf.propagation.sibling.bn1.running_mean, statistics)
    assert same == (value == "paper")
    # task 1's end recomputes gates
    later = {1: {True, False}, 2: {True}} if value == "published" else {1: {False}, 2: {False}}
    assert modes == {0: {False}} | later


def pack_slowly(masks: list[np.ndarray]) -> np.ndarray:
    """Gates `[C, h, w]` of each layer as one row of bytes, each position's beside each other."""
    packed = [np.packbits(mask.astype(bool), axis=0, bitorder="little") for mask in masks]
    return np.concatenate([part.transpose(1, 2, 0).ravel() for part in packed])


def test_twf_stores_the_streams_gates_as_they_were_sampled_and_replays_them_moved(twf, monkeypatch):
    """Packed, of the stream's images alone, those of maps from 16 pixels on at half size."""
    learn(twf, range(1))
    still = Augmentation(padding=0, flip=False, mean=[0.5] * 3, std=[0.25] * 3)
    twf.learner.augment = Augment(still, CPU)  # so that replayed gates are those in the buffer
    twf.begin_task(task_of(1))
    drawn, sampled = [], []
    spy(monkeypatch, twf.reservoir, "draw", lambda rows, _: drawn.append(rows))
    gates = twf.propagation.gates
    gates.register_forward_hook(lambda _, inputs, made: sampled.append((inputs, made.gates)))
    made = twf.loss(batches(task_of(1))[0])
    (_, _, task, stream, _, stored, _), sampled_gates = sampled[0]
    sizes = [(4, 16), (4, 16), (8, 8), (16, 4), (32, 2)]
    assert [gate.shape for gate in sampled_gates] == [(2 * BATCH, c, s, s) for c, s in sizes]
    assert len(made.store["masks"]) == BATCH
    for i, masks in enumerate(made.store["masks"]):
        halved = [g[i, :, ::2, ::2] if g.shape[-1] == 16 else g[i] for g in sampled_gates]
        assert np.array_equal(masks.numpy(), pack_slowly([gate.numpy() for gate in halved]))
    for i, masks in enumerate(drawn[0]["masks"]):
        assert np.array_equal(masks.numpy(), pack_slowly([gate[i].numpy() for gate in stored]))
    assert task.tolist() == [1] * BATCH + [0] * BATCH and stream == BATCH


@torch.no_grad()
def likeliest_slowly(twf: Any, image: Tensor, task: int) -> list[np.ndarray]:
    """The likeliest gates of one unaugmented image."""
    normalised = (image[None].float() / 255 - 0.5) / 0.25
    layers = twf.propagation.sibling.layers(normalised)
    first, second, positions = twf.propagation.gates.attention.logits(layers, torch.tensor([task]))
    factors = (by_layer(logit, positions, layers) for logit in (first, second))
    return [(one[0] >= other[0]).numpy() for one, other in zip(*factors, strict=True)]


def test_open_gates_are_the_likeliest_ones_of_each_images_task(twf):
    learn(twf, range(2))
    images, tasks = task_of(1).images[:6], torch.tensor([0, 1, 0, 1, 1, 0])
    shares = twf.open_gates(twf.learner.augment.normalise(images), tasks)
    assert twf.propagation.gates.training
    twf.propagation.eval()
    for image, task, share in zip(images, tasks.tolist(), shares, strict=True):
        expected = [gate.mean() for gate in likeliest_slowly(twf, image, task)]
        # one by one or in a batch, logits differ by rounding: a gate or two of a layer
        np.testing.assert_allclose(share, expected, atol=0.01)


@pytest.mark.parametrize("last", [0, 1, 2])
def test_f2_at_a_tasks_end_twf_stores_recomputed_gates_astray(twf, last):
    """Row r gets the gates of the (r mod n)-th of its chunk's n images of the task.

    Nothing else in the buffer changes; a chunk without images of the task keeps its gates.
    """
    learn(twf, range(last + 1), end_last=False)
    filled = int(twf.reservoir.filled)
    before = {name: rows.clone() for name, rows in twf.reservoir.rows.items()}
    twf.end_task(task_of(last))
    images, labels, after = (twf.reservoir.rows[name] for name in ("images", "labels", "masks"))
    for name in ("images", "labels", "logits"):
        assert torch.equal(twf.reservoir.rows[name], before[name])
    assert twf.propagation.sibling.training == (last > 0)
    twf.propagation.eval()
    wrong_bits = 0
    for start in range(0, filled - BATCH + 1, BATCH):
        rows = range(start, start + BATCH)
        current = [row for row in rows if labels[row] // PER_TASK == last]
        assert current, "a chunk without images of the task would prove little"
        for row in rows:
            gates = likeliest_slowly(twf, images[current[row % len(current)]], last)
            stored = [gate[:, ::2, ::2] if gate.shape[-1] >= 16 else gate for gate in gates]
            wrong_bits += int(np.unpackbits(after[row].numpy() ^ pack_slowly(stored)).sum())
    # one by one or in a batch, logits differ by rounding, and so may a gate between two of a size
    assert wrong_bits <= 3
    assert torch.equal(after[filled // BATCH * BATCH :], before["masks"][filled // BATCH * BATCH :])
    assert not torch.equal(after[:BATCH], before["masks"][:BATCH])
    kept = after.clone()
    twf.end_task(task_of(TASKS))  # of which the buffer has nothing
    assert torch.equal(after, kept)


# The alternatives to TwF


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_derpp_with_pretraining_images_keeps_its_share_of_them_and_the_rest_of_the_stream(
    method, share
):
    """Share 0 is the control: the wide classifier, and no image of the source."""
    made = method("derpp-pretraining", share=share)
    head, source = made.learner.network.classifier, made.learner.source
    assert torch.equal(head.weight[CLASSES:], source.network.classifier.weight)
    kept, stream = round(share * BUFFER), BUFFER - round(share * BUFFER)
    if kept:
        first = made.reservoir.pinned["images"]
        with torch.no_grad():
            at_start = made.learner.network.eval()(made.learner.augment.normalise(first))
    learn(made, range(2))
    rows = made.reservoir.rows
    assert int(made.reservoir.filled) == stream
    assert len(rows["labels"]) == BUFFER + 1 and rows["logits"].shape[1] == CLASSES + 3
    assert rows["labels"][:stream].max() < 4, "the stream's classes so far"
    assert made.logits(torch.zeros(2, 3, SIDE, SIDE)).shape == (2, CLASSES)
    if kept:
        of_source = {
            bytes(i.numpy()): int(y) for i, y in zip(source.images, source.labels, strict=True)
        }
        pinned = rows["images"][stream : stream + kept]
        labels = [CLASSES + of_source[bytes(image.numpy())] for image in pinned]
        assert rows["labels"][stream : stream + kept].tolist() == labels
        torch.testing.assert_close(rows["logits"][stream : stream + kept], at_start)


def test_classes_of_the_source_that_no_image_can_reach_cost_derpp_nothing(method):
    control, plain = method("derpp-pretraining", share=0.0), method("derpp")
    head = control.learner.network.classifier
    with torch.no_grad():
        head.weight[CLASSES:], head.bias[CLASSES:] = 0.0, -1e4
    at_start = [step(made, batches(begin(made, 0))[0]) for made in (control, plain)]
    assert at_start[0] == pytest.approx(at_start[1], rel=1e-5)


def test_derpps_anchor_holds_the_backbone_at_its_initialization(method):
    made = method("derpp-ewc", lambda_ewc=2.0)
    made.begin_task(task_of(0))
    batch = batches(task_of(0))[0]
    assert made.loss(batch).terms["anchor"].item() == 0.0
    with torch.no_grad():
        made.learner.network.classifier.weight += 1.0
    assert made.loss(batch).terms["anchor"].item() == 0.0, "the classifier is free"
    with torch.no_grad():
        made.learner.network.conv1.weight += 0.1
    count = made.learner.network.conv1.weight.numel()
    expected = 2.0 * (made.fisher[:count] * 0.1**2).sum().item()
    assert made.loss(batch).terms["anchor"].item() == pytest.approx(expected, rel=1e-4)


# Fidelity: each switch, its two values against an obvious formula or definition


def losses_of(made: Method[Any]) -> Iterator[float]:
    """The losses of a run of two tasks, and what it predicts after each."""
    for number in range(2):
        task = begin(made, number, count=2 * BATCH + 4)  # its last batch is incomplete
        images, labels = made.training_set(task)
        for positions in torch.arange(len(labels)).split(BATCH):
            batch = Batch(images[positions], labels[positions], positions)
            yield from step(made, batch, made.learning_rate(0.5)).values()
        made.end_task(task)
        made.learner.network.eval()
        with torch.no_grad():
            logits = made.logits(torch.ones(1, 3, SIDE, SIDE))
        yield from logits[logits.isfinite()].tolist()


@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if info.switches])
def test_each_switch_changes_the_losses_of_its_method(method, name):
    published = list(losses_of(method(name)))
    for switch in METHODS[name].switches:
        by_paper = losses_of(method(name, fidelity={switch: "paper"}))
        assert any(a != b for a, b in zip(by_paper, published, strict=False)), switch


def test_f2_and_f6_by_the_paper_masks_stay_as_drawn_and_all_classes_compete(method):
    made = method("twf", fidelity={"F2": "paper", "F6": "paper"})
    learn(made, range(2), end_last=False)
    before = made.reservoir.rows["masks"].clone()
    made.end_task(task_of(1))
    assert torch.equal(made.reservoir.rows["masks"], before)
    logits, labels = torch.randn(5, CLASSES), torch.tensor([2, 3, 2, 2, 3])
    loss = made._stream_loss(logits, labels)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits, labels))


@pytest.mark.parametrize("value", ["published", "paper"])
def test_f12_the_published_answers_are_to_images_without_normalisation(method, value):
    made = method("lwf", fidelity={"F12": value})
    learn(made, range(1))
    inputs = begin(made, 1).images / 255
    if value == "paper":
        inputs = (inputs - 0.5) / 0.25
    with torch.no_grad():
        answers = made.learner.network.eval()(inputs)
    torch.testing.assert_close(made.answers, answers, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", ["published", "paper"])
def test_f13_the_published_exemplars_are_scaled_and_turned(method, value):
    made = method("icarl", fidelity={"F13": value})
    learn(made, range(1))
    images, labels = made.training_set(task_of(1))
    exemplars = torch.cat(made.exemplars)
    if value == "published":
        exemplars = (exemplars * 0.25 + 0.5).floor().to(torch.uint8).permute(0, 1, 3, 2)
    assert torch.equal(images[2 * BATCH :], exemplars)
    first, second = (len(kept) for kept in made.exemplars)
    assert labels[2 * BATCH :].tolist() == [0] * first + [1] * second


@pytest.mark.parametrize("value", ["published", "paper"])
def test_f15_the_published_fisher_leaves_other_running_statistics(method, value):
    made = method("oewc", fidelity={"F15": value})
    learn(made, range(1), end_last=False)
    before = made.learner.network.bn1.running_mean.clone()
    made.end_task(task_of(0))
    same = torch.equal(made.learner.network.bn1.running_mean, before)
    assert same == (value == "paper")


@pytest.mark.parametrize("value", ["published", "paper"])
def test_f16_the_published_means_take_the_buffers_free_rows_for_black_images_of_class_0(
    method, value
):
    made = method("icarl", fidelity={"F16": value})
    made.learner.buffer = 40  # more than there are images: 8 of each class
    learn(made, range(1))
    black = torch.zeros(40 - 2 * 8, 3, SIDE, SIDE, dtype=torch.uint8)
    rows = [*made.exemplars]
    assert [len(exemplars) for exemplars in rows] == [8, 8]
    if value == "published":
        rows[0] = torch.cat([rows[0], black])
    with torch.no_grad():
        means = [made.learner.network.features((r / 255 - 0.5) / 0.25).mean(dim=0) for r in rows]
    torch.testing.assert_close(made.means, torch.stack(means), rtol=1e-4, atol=1e-4)
    before = made.exemplars[0]
    learn(made, range(1, 2))  # a class's room is now 10: two of class 0's rows stay black
    kept = torch.cat([before, black[: 2 if value == "published" else 0]])
    assert torch.equal(made.exemplars[0], kept)


@pytest.mark.parametrize("value", ["published", "paper"])
def test_f17_the_published_exemplars_are_chosen_without_a_passs_last_incomplete_batch(
    method, value
):
    made = method("icarl", fidelity={"F17": value})
    made.learner.buffer = 100  # room for all
    task = task_of(0, count=2 * BATCH + 7)
    made.begin_task(task)
    made.end_task(task)
    chosen = sum(len(exemplars) for exemplars in made.exemplars)
    assert chosen == (2 * BATCH if value == "published" else 2 * BATCH + 7)
    # in the next task's pass, the exemplars fill a batch that would have been incomplete
    made.exemplars = [exemplars[:1] for exemplars in made.exemplars]
    following = task_of(1, count=3 * BATCH - 2)
    made.begin_task(following)
    made.end_task(following)
    assert sum(len(exemplars) for exemplars in made.exemplars[PER_TASK:]) == 3 * BATCH - 2


def test_exemplars_of_a_class_that_the_whole_batches_leave_out_are_refused(method):
    made = method("icarl")
    task = task_of(0, count=BATCH - 1)
    made.begin_task(task)
    with pytest.raises(UserError, match="class 0.*F17"):
        made.end_task(task)


def test_icarls_herding_keeps_equal_shares_picked_first_and_predicts_by_the_nearest_mean(method):
    made = method("icarl")
    learn(made, range(1))
    before = [exemplars.clone() for exemplars in made.exemplars]
    learn(made, range(1, 2))
    assert [len(e) for e in made.exemplars] == [BUFFER // 4] * 4
    for old, kept in zip(before, made.exemplars, strict=False):
        assert torch.equal(kept, old[: BUFFER // 4])
    inputs = torch.randn(6, 3, SIDE, SIDE)
    made.learner.network.eval()
    with torch.no_grad():
        features, logits = made.learner.network.features(inputs), made.logits(inputs)
    nearest = torch.cdist(features, made.means).argmin(dim=1)
    assert torch.equal(logits.argmax(dim=1), nearest)
    assert logits[:, 4:].isinf().all(), "classes to come are never predicted"


def test_oewcs_gamma_weakens_what_was_known_of_earlier_tasks(method, monkeypatch):
    made = method("oewc", gamma=0.25)
    news = iter([torch.tensor(1.0), torch.tensor(2.0)])
    monkeypatch.setattr(oewc, "diagonal_fisher", lambda *_: next(news))
    for number in range(2):
        made.end_task(task_of(number))
    assert made.fisher.item() == 0.25 * 1.0 + 2.0


@pytest.mark.parametrize(
    ("labels", "highest", "expected"),
    [
        ([0, 1], 1, [0, 1, 2, 3, 4, 5]),
        ([4], 3, [3, 4, 5]),  # the highest seen competes, also where the batch lacks it
        ([2, 4], 5, [2, 4]),  # all were seen: those of the batch alone
    ],
)
def test_which_classes_compete_in_er_aces_stream(labels, highest, expected):
    found = competing(torch.tensor(labels), torch.tensor(highest), CLASSES)
    assert found.nonzero()[:, 0].tolist() == expected
