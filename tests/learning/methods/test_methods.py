"""The methods on small real networks: what they minimise, store and leave alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support import CPU, spy
from torch import Tensor

from twf.errors import UserError
from twf.learning import loop
from twf.learning.augmentation import Augment
from twf.learning.methods import make, oewc
from twf.learning.methods.base import Batch, Method, Task
from twf.learning.methods.er_ace import competing
from twf.learning.models.gates import to_stored_size
from twf.learning.models.resnet import ResNet
from twf.learning.state import capture, flatten
from twf.learning.step import Plain
from twf.study.methods import METHODS
from twf.study.params import Augmentation, LrDecay

TASKS, PER_TASK, BATCH, BUFFER, SIDE = 3, 2, 8, 21, 16
CLASSES = TASKS * PER_TASK
STILL = Augment(Augmentation(padding=0, flip=False, mean=[0.5] * 3, std=[0.25] * 3), CPU)


@pytest.fixture
def method(tiny_run, tiny_dataset, tiny_source, tiny_checkpoint) -> Callable[..., Any]:
    """`method(name, **changes)`: ready for its first task; hyperparameters and switches change."""

    def make_one(name: str, buffer: int | None = BUFFER, **changes: Any) -> Method[Any]:
        switches = dict.fromkeys(METHODS[name].switches, "published")
        switches |= {switch: changes.pop(switch) for switch in switches.keys() & changes.keys()}
        run = tiny_run(
            name,
            classes=CLASSES,
            tasks=TASKS,
            epochs=1,
            batch_size=BATCH,
            buffer=buffer if METHODS[name].rehearsal else None,
            fidelity=switches,
            hyperparameters=changes,
        )
        source = tiny_source if METHODS[name].source_data else None
        learner = loop.make_learner(run, tiny_dataset, source, tiny_checkpoint.tensors, CPU)
        return make(name, learner, run.hyperparameters)

    return make_one


@pytest.fixture
def twf(method) -> Any:
    return method("twf")


@pytest.fixture(params=["published", "paper"])
def value(request: pytest.FixtureRequest) -> str:
    """Each value of a switch."""
    return request.param


def task_of(number: int, count: int = 2 * BATCH) -> Task:
    """A task's images: random, all different, their classes in turn."""
    generator = torch.Generator().manual_seed(number)
    images = torch.randint(0, 256, (count, 3, SIDE, SIDE), generator=generator)
    labels = PER_TASK * number + torch.arange(count) % PER_TASK
    return Task(number, images.to(torch.uint8), labels)


def batches(images: Tensor, labels: Tensor) -> list[Batch]:
    """The whole batches, in order."""
    positions = torch.arange(len(labels) // BATCH * BATCH).split(BATCH)
    return [Batch(images[p], labels[p], p) for p in positions]


def begin(method: Method[Any], number: int, count: int = 2 * BATCH) -> list[Batch]:
    """Begin a task as the loop does; gives its batches."""
    for module in method.modules():
        module.train()
    task = task_of(number, count)
    method.begin_task(task)
    return batches(*method.training_set(task))


def step(method: Method[Any], batch: Batch) -> dict[str, float]:
    """What the loop does of one batch."""
    made = method.loss(batch)
    sum(made.terms.values()).backward()
    parameters = [p for module in method.modules() for p in module.parameters()]
    method.update(parameters, method.learning_rate(0.5))
    if method.buffer is not None:
        method.buffer.insert(**made.store)
    return {name: value.item() for name, value in made.terms.items()}


def learn(
    method: Method[Any], numbers: range, end_last: bool = True, count: int = 2 * BATCH
) -> list[float]:
    """Go through tasks as the loop does, with one epoch each; gives the losses."""
    losses: list[float] = []
    for number in numbers:
        for batch in begin(method, number, count):
            losses += step(method, batch).values()
        if end_last or number != numbers[-1]:
            method.end_task(task_of(number, count))
    return losses


@pytest.mark.parametrize("name", METHODS)
def test_steps_lower_a_methods_own_loss_on_a_fixed_batch(method, name):
    made = method(name)
    made.learner.augment = STILL
    fixed = begin(made, 0)[0]
    losses = [sum(step(made, fixed).values()) for _ in range(12)]
    # the first step of rehearsal has nothing to replay yet
    assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[1:4])  # a smoothed loss has a floor


@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if info.without_buffer])
def test_a_method_that_can_learn_without_a_buffer_replays_nothing(method, name):
    made = method(name, buffer=None)
    learn(made, range(1))
    terms = step(made, begin(made, 1)[0])
    assert np.isfinite(list(terms.values())).all()
    assert not any(value for term, value in terms.items() if "replay" in term)


@pytest.mark.parametrize("name", METHODS)
def test_a_loss_changes_nothing_and_a_step_trains_every_module_that_a_method_names(method, name):
    made = method(name)
    learn(made, range(1))
    batch = begin(made, 1)[0]

    def state() -> list[Tensor]:
        flat = [torch.cat([p.flatten() for p in m.parameters()]) for m in made.modules()]
        return [part.detach() for part in flat]

    before, seen = state(), None if made.buffer is None else int(made.buffer.seen)
    made.loss(batch)  # to store is the loop's to do, after the update
    assert all(map(torch.equal, before, state()))
    assert made.buffer is None or int(made.buffer.seen) == seen
    step(made, batch)
    assert not any(map(torch.equal, before, state()))


def pairs(images: Tensor, labels: Tensor) -> list[tuple[bytes, int]]:
    """Each image's pixels with its label."""
    return [(bytes(i.numpy()), int(label)) for i, label in zip(images, labels, strict=True)]


@pytest.mark.parametrize("name", ["er", "er-ace", "derpp", "derpp-ewc", "twf"])
def test_rehearsal_keeps_the_streams_raw_images_with_their_labels(method, name):
    made = method(name)
    learn(made, range(2))
    kept = pairs(*(made.reservoir.rows[n][:BUFFER] for n in ("images", "labels")))
    offered = [pair for task in map(task_of, range(2)) for pair in pairs(task.images, task.labels)]
    assert len(set(kept)) == BUFFER and set(kept) <= set(offered)  # each was offered once
    assert {label for _, label in kept} == {0, 1, 2, 3}


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
    learn(made, range(1))
    batch, seen, drawn = begin(made, 1)[0], [], []
    spy(monkeypatch, ResNet, "layers", lambda _, network, images: seen.append(len(images)))
    if made.buffer is not None:
        spy(monkeypatch, made.buffer, "draw", lambda rows, _: drawn.append(rows["labels"]))
    made.loss(batch)
    assert seen == sizes
    assert name != "derpp" or not torch.equal(*drawn)  # its replays are drawn apart


@pytest.mark.parametrize("name", ["derpp", "twf"])
def test_stored_logits_are_those_of_the_step_that_offered_the_image(method, monkeypatch, name):
    made, seen = method(name), []
    first, second = begin(made, 0)
    spy(monkeypatch, ResNet, "classify", lambda logits, *_: seen.append(logits.detach().clone()))
    step(made, first)
    step(made, second)
    assert torch.equal(made.reservoir.rows["logits"][:BATCH], seen[0])  # the stream comes first
    assert not made.reservoir.rows["logits"].requires_grad


@pytest.mark.parametrize("name", ["joint", "er"])
def test_joint_has_one_phase_with_everything_and_keeps_its_last_batch(method, monkeypatch, name):
    made, tasks = method(name), [task_of(number, count=BATCH + 3) for number in range(2)]
    first, *others = made.phases(tasks)
    if name == "joint":
        assert not others
        for part in ("images", "labels"):
            assert torch.equal(getattr(first, part), torch.cat([getattr(t, part) for t in tasks]))
    else:
        assert [first, *others] == tasks
    made.begin_task(first)
    seen: list[list[int]] = []
    spy(monkeypatch, made, "loss", lambda _, batch: seen.append(batch.positions.tolist()))
    steps = Plain(made)
    steps.begin(first.images, first.labels)
    loop._epoch(steps, loop.Place(), len(first.images), lambda: None)
    sizes = [len(positions) for positions in seen]
    assert sizes == ([BATCH, BATCH, 6] if name == "joint" else [BATCH])
    assert len({p for positions in seen for p in positions}) == sum(sizes), "each once an epoch"


# TwF


def test_twfs_sibling_stays_the_pretrained_network_and_a_state_leaves_its_parameters_out(twf):
    sibling = twf.propagation.sibling
    start = {name: t.clone() for name, t in twf.learner.network.state_dict().items()}
    assert all(torch.equal(t, start[name]) for name, t in sibling.state_dict().items())
    learn(twf, range(2))
    for name, parameter in sibling.named_parameters():
        assert torch.equal(parameter, start[name]) and not parameter.requires_grad
    trained = {id(p) for module in twf.modules() for p in module.parameters()}
    assert not trained & {id(p) for p in sibling.parameters()}
    saved = flatten(capture(twf), {})["method"]["propagation"]["parameters"]
    names = {name for name in saved if name.startswith("sibling.")}
    assert names and all("running" in name or "num_batches" in name for name in names)


def test_twf_whose_propagation_has_no_weight_learns_the_same_bits_without_it(method, value):
    without, with_it = (method("twf", lambda_fp=weight, F6=value) for weight in (0.0, 0.5))
    assert without.propagation is None is not with_it.propagation
    for made in (without, with_it):
        made.weights = dict.fromkeys(made.weights, 0.0)
        learn(made, range(3))
    states = [made.learner.network.state_dict() for made in (without, with_it)]
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    for name, rows in without.reservoir.rows.items():
        assert torch.equal(rows[:-1], with_it.reservoir.rows[name][:-1]), name
    assert "masks" not in without.reservoir.rows


def test_f14_as_published_lambda_fp_decides_whether_any_term_has_a_weight(method, value):
    made = method("twf", lambda_fp=0.0, lambda_diversity=0.1, F14=value)
    assert (made.propagation is None) == (value == "published")


def test_f1_the_published_sibling_uses_batch_statistics_from_the_second_task_on(
    method, monkeypatch, value
):
    """Evaluation mode in the first task, and at each task's end, which recomputes gates."""
    twf = method("twf", F1=value)
    modes: list[set[bool]] = [set(), set(), set()]

    def tell(_: Any, network: ResNet, images: Tensor) -> None:
        if network is twf.propagation.sibling:
            modes[twf.task].add(network.bn1.training)

    spy(monkeypatch, ResNet, "layers", tell)
    statistics = twf.propagation.sibling.bn1.running_mean.clone()
    learn(twf, range(1))
    assert torch.equal(twf.propagation.sibling.bn1.running_mean, statistics)
    learn(twf, range(1, 3), end_last=False)
    same = torch.equal(twf.propagation.sibling.bn1.running_mean, statistics)
    assert same == (value == "paper")
    assert modes == [{False}, *([{True, False}, {True}] if value == "published" else [{False}] * 2)]


def test_twf_stores_the_streams_gates_as_they_were_sampled_and_replays_them_moved(twf, monkeypatch):
    """Packed, of the stream's images alone, those of maps from 16 pixels on at half size."""
    learn(twf, range(1))
    twf.learner.augment = STILL  # so that replayed gates are those in the buffer
    batch, drawn, sampled = begin(twf, 1)[0], [], []
    spy(monkeypatch, twf.reservoir, "draw", lambda rows, _: drawn.append(rows["masks"]))
    gates, packer = twf.propagation.gates, twf.propagation.packer
    gates.register_forward_hook(lambda _, inputs, made: sampled.append((inputs, made.gates)))
    made = twf.loss(batch)
    (_, _, task, stream, _, stored, _), opened = sampled[0]
    sizes = [(4, 16), (4, 16), (8, 8), (16, 4), (32, 2)]
    assert [gate.shape for gate in opened] == [(2 * BATCH, c, s, s) for c, s in sizes]
    halved = [gate[:, :, ::2, ::2] if gate.shape[-1] == 16 else gate for gate in opened]
    assert torch.equal(made.store["masks"], packer.pack([gate[:BATCH] for gate in halved]))
    assert all(map(torch.equal, stored, packer.unpack(drawn[0])))
    assert task.tolist() == [1] * BATCH + [0] * BATCH and stream == BATCH


def likeliest(twf: Any, image: Tensor, task: int) -> list[Tensor]:
    """The likeliest gates of one unaugmented image, `[1, C, H, W]` of each layer."""
    twf.propagation.eval()
    layers = twf.propagation.sibling.layers((image[None].float() / 255 - 0.5) / 0.25)
    return twf.propagation.gates.likeliest(layers, torch.tensor([task]))


# one by one or in a batch, logits differ by rounding, and so may a gate or two of a layer


def test_open_gates_are_the_likeliest_ones_of_each_images_task(twf):
    learn(twf, range(2))
    images, tasks = task_of(1).images[:6], torch.tensor([0, 1, 0, 1, 1, 0])
    shares = twf.open_gates(twf.learner.augment.normalise(images), tasks)
    assert twf.propagation.gates.training
    for image, task, share in zip(images, tasks.tolist(), shares, strict=True):
        expected = [float(gate.double().mean()) for gate in likeliest(twf, image, task)]
        assert share.tolist() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("last", [0, 1, 2])
def test_f2_at_a_tasks_end_twf_stores_recomputed_gates_astray(twf, last):
    """Row r gets the gates of the (r mod n)-th of its chunk's n images of the task.

    Nothing else in the buffer changes; a chunk without images of the task keeps its gates.
    """
    learn(twf, range(last + 1), end_last=False)
    rows, filled = twf.reservoir.rows, int(twf.reservoir.filled)
    before = {name: values.clone() for name, values in rows.items()}
    twf.end_task(task_of(last))
    assert all(torch.equal(rows[name], before[name]) for name in ("images", "labels", "logits"))
    assert twf.propagation.sibling.training == (last > 0)
    whole, wrong_bits = filled // BATCH * BATCH, 0
    for chunk in torch.arange(whole).split(BATCH):
        current = chunk[rows["labels"][chunk] // PER_TASK == last]
        assert len(current), "a chunk without images of the task would prove little"
        for row in chunk.tolist():
            gates = likeliest(twf, rows["images"][current[row % len(current)]], last)
            expected = twf.propagation.packer.pack([to_stored_size(gate) for gate in gates])[0]
            wrong_bits += int(np.unpackbits((rows["masks"][row] ^ expected).numpy()).sum())
    assert wrong_bits <= 3
    assert torch.equal(rows["masks"][whole:], before["masks"][whole:])
    assert not torch.equal(rows["masks"][:BATCH], before["masks"][:BATCH])
    kept = rows["masks"].clone()
    twf.end_task(task_of(TASKS))  # of which the buffer has nothing
    assert torch.equal(rows["masks"], kept)


def test_f2_by_the_paper_masks_stay_as_drawn(method):
    made = method("twf", F2="paper")
    learn(made, range(2), end_last=False)
    before = made.reservoir.rows["masks"].clone()
    made.end_task(task_of(1))
    assert torch.equal(made.reservoir.rows["masks"], before)


# The alternatives to TwF


@pytest.mark.parametrize("share", [0.5, 0.0, 0.98])
def test_derpp_with_pretraining_images_keeps_its_share_of_them_and_the_rest_of_the_stream(
    method, share
):
    """Share 0 is the control, with the wide classifier; nearly all leaves one row to the stream."""
    made = method("derpp-pretraining", share=share)
    network, source = made.learner.network, made.learner.source
    assert torch.equal(network.classifier.weight[CLASSES:], source.network.classifier.weight)
    with torch.no_grad():
        images = made.learner.augment.normalise(made.reservoir.pinned["images"])
        at_start = network.eval()(images)
    learn(made, range(2))
    rows, stream = made.reservoir.rows, max(1, BUFFER - round(share * BUFFER))
    assert int(made.reservoir.filled) == stream
    assert len(rows["labels"]) == BUFFER + 1 and rows["logits"].shape[1] == CLASSES + 3
    assert rows["labels"][:stream].max() < 4, "the stream's classes so far"
    assert made.logits(torch.zeros(2, 3, SIDE, SIDE)).shape == (2, CLASSES)
    pinned = pairs(*(rows[name][stream:BUFFER] for name in ("images", "labels")))
    assert set(pinned) <= set(pairs(source.images, CLASSES + source.labels))
    torch.testing.assert_close(rows["logits"][stream:BUFFER], at_start)


def test_pretraining_images_of_another_size_are_refused(method, tiny_source):
    object.__setattr__(tiny_source, "train_images", tiny_source.train_images[:, ::2, ::2])
    with pytest.raises(UserError, match="images of 8 pixels .* with those of 16"):
        method("derpp-pretraining")


def test_derpps_anchor_holds_the_backbone_at_its_initialization(method):
    made = method("derpp-ewc", lambda_ewc=2.0)
    batch, network = begin(made, 0)[0], made.learner.network
    with torch.no_grad():
        network.classifier.weight += 1.0
        assert made.loss(batch).terms["anchor"].item() == 0.0, "the classifier is free"
        network.conv1.weight += 0.1
    expected = 2.0 * (made.fisher[: network.conv1.weight.numel()] * 0.1**2).sum().item()
    assert made.loss(batch).terms["anchor"].item() == pytest.approx(expected, rel=1e-4)


# Fidelity: each switch, its two values against an obvious formula or definition; F3 to F7, F10 and
# F14 beside the golden numbers and in test_gates.py


def losses_of(made: Method[Any]) -> list[float]:
    """The losses of a run of two tasks, and what it predicts in the end."""
    losses = learn(made, range(2), count=2 * BATCH + 4)  # an incomplete last batch
    made.learner.network.eval()
    with torch.no_grad():
        logits = made.logits(torch.ones(1, 3, SIDE, SIDE))
    return losses + logits[logits.isfinite()].tolist()


@pytest.mark.parametrize("name", [name for name, info in METHODS.items() if info.switches])
def test_each_switch_changes_the_losses_of_its_method(method, name):
    published = losses_of(method(name))
    for switch in METHODS[name].switches:
        assert losses_of(method(name, **{switch: "paper"})) != published, switch


def test_f11_co2ls_original_rate_warms_up_and_is_annealed(method, value):
    """Ten of fifty epochs from 0.01 to where the cosine is, then to a thousandth.

    The benchmark's steps have no part in it; as published, they are all.
    """
    made = method("co2l", F11=value)
    made.learner.epochs, made.learner.lr_decay = 50, LrDecay(factor=0.1, epochs=[35, 45])
    rates = [made.learning_rate(half / 2) for half in range(100)]
    if value == "published":
        assert rates == pytest.approx([0.05] * 70 + [0.005] * 20 + [0.0005] * 10)
        return
    cosine = [0.00005 + 0.04995 * (1 + np.cos(np.pi * i / 100)) / 2 for i in range(100)]
    assert [rates[0], rates[10]] == pytest.approx([0.01, (0.01 + cosine[20]) / 2])
    assert rates[20:] == pytest.approx(cosine[20:])


def test_co2ls_classifier_is_fitted_to_what_the_buffer_keeps(method):
    made = method("co2l", F11="paper")
    made.learner.augment = STILL
    learn(made, range(2))
    with torch.no_grad():
        right = made.logits(STILL.normalise(made.images)).argmax(dim=1) == made.labels
    assert right.float().mean() > 0.8


def test_lwfs_warm_up_trains_the_tasks_rows_of_the_classifier_alone(method):
    made = method("lwf")
    learn(made, range(1))
    network = made.learner.network
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    begin(made, 1)
    state = network.state_dict()
    changed = {name for name, tensor in state.items() if not torch.equal(tensor, before[name])}
    assert changed == {"classifier.weight", "classifier.bias"}
    bias = network.classifier.bias != before["classifier.bias"]
    assert bias.nonzero()[:, 0].tolist() == [2, 3]


def test_f12_the_published_answers_are_to_images_without_normalisation(method, value):
    made = method("lwf", F12=value)
    learn(made, range(1))
    begin(made, 1)
    inputs = task_of(1).images / 255
    if value == "paper":
        inputs = (inputs - 0.5) / 0.25
    with torch.no_grad():
        answers = made.learner.network.eval()(inputs)
    torch.testing.assert_close(made.answers, answers, rtol=1e-4, atol=1e-4)


def test_f13_the_published_exemplars_are_scaled_and_turned(method, value):
    made = method("icarl", F13=value)
    learn(made, range(1))
    images, labels = made.training_set(task_of(1))
    exemplars = torch.cat(made.exemplars)
    if value == "published":
        exemplars = (exemplars * 0.25 + 0.5).floor().to(torch.uint8).permute(0, 1, 3, 2)
    assert torch.equal(images[2 * BATCH :], exemplars)
    first, second = (len(kept) for kept in made.exemplars)
    assert labels[2 * BATCH :].tolist() == [0] * first + [1] * second


def test_f15_the_published_fisher_leaves_other_running_statistics(method, value):
    made = method("oewc", F15=value)
    learn(made, range(1), end_last=False)
    before = made.learner.network.bn1.running_mean.clone()
    made.end_task(task_of(0))
    same = torch.equal(made.learner.network.bn1.running_mean, before)
    assert same == (value == "paper")


def test_f16_the_published_means_take_the_buffers_free_rows_for_black_images_of_class_0(
    method, value
):
    made = method("icarl", buffer=40, F16=value)  # more than there are images: 8 of each class
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


def test_f17_the_published_exemplars_are_chosen_without_a_passs_last_incomplete_batch(
    method, value
):
    made = method("icarl", buffer=100, F17=value)  # room for all
    begin(made, 0)
    made.end_task(task_of(0, count=2 * BATCH + 7))
    chosen = sum(len(exemplars) for exemplars in made.exemplars)
    assert chosen == (2 * BATCH if value == "published" else 2 * BATCH + 7)
    # in the next task's pass, the exemplars fill a batch that would have been incomplete
    made.exemplars = [exemplars[:1] for exemplars in made.exemplars]
    begin(made, 1)
    made.end_task(task_of(1, count=3 * BATCH - 2))
    assert sum(len(exemplars) for exemplars in made.exemplars[PER_TASK:]) == 3 * BATCH - 2


def test_exemplars_of_a_class_that_the_whole_batches_leave_out_are_refused(method):
    made = method("icarl")
    begin(made, 0)
    with pytest.raises(UserError, match="class 0.*F17"):
        made.end_task(task_of(0, count=BATCH - 1))


def test_icarls_herding_keeps_equal_shares_picked_first_and_predicts_by_the_nearest_mean(method):
    made = method("icarl")
    learn(made, range(1))
    before = list(made.exemplars)
    learn(made, range(1, 2))
    assert [len(exemplars) for exemplars in made.exemplars] == [BUFFER // 4] * 4
    for old, kept in zip(before, made.exemplars, strict=False):
        assert torch.equal(kept, old[: BUFFER // 4])
    inputs = torch.randn(6, 3, SIDE, SIDE)
    made.learner.network.eval()
    with torch.no_grad():
        features, logits = made.learner.network.features(inputs), made.logits(inputs)
    assert torch.equal(logits.argmax(dim=1), torch.cdist(features, made.means).argmin(dim=1))
    assert logits[:, 4:].isinf().all(), "classes to come are never predicted"


def test_oewcs_gamma_weakens_what_was_known_of_earlier_tasks(method, monkeypatch):
    made = method("oewc", gamma=0.25)
    news = iter([torch.tensor(1.0), torch.tensor(2.0)])
    monkeypatch.setattr(oewc, "diagonal_fisher", lambda *_: next(news))
    for number in range(2):
        made.end_task(task_of(number))
    assert made.fisher.item() == 0.25 * 1.0 + 2.0


def test_which_classes_compete_in_er_aces_stream():
    for labels, highest, expected in (
        ([0, 1], 1, [0, 1, 2, 3, 4, 5]),
        ([4], 3, [3, 4, 5]),  # the highest seen competes, also where the batch lacks it
        ([2, 4], 5, [2, 4]),  # all were seen: those of the batch alone
    ):
        competes = competing(torch.tensor(labels), torch.tensor(highest), CLASSES)
        assert competes.nonzero()[:, 0].tolist() == expected
