"""How often each piece of a run's work is done, and what follows from it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from conftest import some_hyperparameters

from twf.data.registry import Splits
from twf.data.store import Dataset
from twf.forecast import cost
from twf.forecast.cost import Timing, Work
from twf.jobs.resume import Keeper
from twf.learning import loop
from twf.learning.methods import load
from twf.learning.step import Plain
from twf.study.methods import METHODS
from twf.study.reading import check
from twf.tracking.live import LiveTracker

TINY = Splits(train=44, test=16)
NOTHING = dict.fromkeys(Timing.model_fields, 0.0)


@pytest.mark.parametrize("method", METHODS)
def test_steps_and_evaluated_images_are_those_of_a_real_run(
    method, train, tiny_run, monkeypatch
) -> None:
    steps: Counter[int] = Counter()
    tested = 0

    def counted(steps_of: Plain, *words: object) -> dict:
        steps[steps_of.method.task] += 1
        return step(steps_of, *words)

    def counted_images(logits: object, augment: object, images: torch.Tensor, *words: int):
        nonlocal tested
        tested += len(images)
        return per_task(logits, augment, images, *words)

    step, per_task = Plain.step, loop.accuracy_per_task
    monkeypatch.setattr(Plain, "step", counted)
    monkeypatch.setattr(loop, "accuracy_per_task", counted_images)
    train(method, epochs=3)
    work = cost.work(tiny_run(method, epochs=3), TINY)
    assert work.first_steps == steps[0]
    assert work.later_steps == sum(steps.values()) - steps[0]
    assert work.evaluation == tested


class Passed:
    """Counts the images that pass the first layer of any network, while it is entered."""

    def __enter__(self) -> Passed:
        self.images = 0
        hook = torch.nn.modules.module.register_module_forward_pre_hook
        self.handle = hook(self._count)
        return self

    def _count(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:
            self.images += len(inputs[0])

    def __exit__(self, *_: object) -> None:
        self.handle.remove()


def images_of_hooks(run, per_class: int, checkpoint, source, tmp_path, monkeypatch) -> Counter[str]:
    """The images that setup and the hooks between tasks pass, in a real run."""
    found: Counter[str] = Counter()

    def watched(name: str, function):
        def call(*words: object):
            with Passed() as passed:
                result = function(*words)
            found[name] += passed.images
            return result

        return call

    kind = load(run.method)
    monkeypatch.setattr(loop, "make", watched("setup", loop.make))
    monkeypatch.setattr(kind, "begin_task", watched("begin", kind.begin_task))
    monkeypatch.setattr(kind, "end_task", watched("end", kind.end_task))
    labels = torch.arange(4).repeat_interleave(per_class)
    images = torch.randint(0, 256, (len(labels), 16, 16, 3), dtype=torch.uint8)
    names = list("abcd")
    dataset = Dataset("set", names, images, labels, images, labels, "", "")
    keeper = Keeper(tmp_path / "none" / "state.safetensors", {}, float("inf"))
    loop.train(
        run,
        dataset,
        None if run.source_data is None else source,
        checkpoint.tensors,
        torch.device("cpu"),
        LiveTracker(),
        lambda *_: None,
        keeper,
    )
    keeper.forget()
    monkeypatch.undo()
    return found


@pytest.mark.parametrize("method", METHODS)
def test_what_hooks_go_through_is_what_a_method_says(
    method, tiny_run, tiny_checkpoint, tiny_source, tmp_path, monkeypatch
) -> None:
    """In proportion; TwF's counts for two networks, and leaves out some images of its buffer."""
    sizes = [(12, 1, 16), (24, 1, 16), (12, 3, 16), (12, 1, 8)]
    ratios: dict[str, list[float]] = {"begin": [], "end": []}
    for per_class, epochs, buffer in sizes:
        run = tiny_run(method, epochs=epochs)
        if run.buffer is not None:
            run = run.model_copy(update={"buffer": buffer})
        inputs = tiny_checkpoint, tiny_source, tmp_path, monkeypatch
        found = images_of_hooks(run, per_class, *inputs)
        work = cost.work(run, Splits(train=4 * per_class, test=4 * per_class))
        for piece, values in ratios.items():
            said = getattr(work, piece)
            assert (said == 0) == (found[piece] == 0), (piece, said, found)
            values.append(found[piece] / said if said else 1.0)
        if cost.PASSES[method].setup_images is not None:
            assert work.setup == found["setup"]
    spread = 1.5 if method == "twf" else 1.0
    assert all(max(values) <= spread * min(values) for values in ratios.values()), ratios


def test_held_out_images_are_evaluated_and_not_trained_on(tiny_run) -> None:
    run = tiny_run("finetune", held_out=0.25)
    work = cost.work(run, TINY)
    assert (work.first_steps, work.evaluation) == (2 * (16 // 8), 3 * 11)


def test_probes_go_through_the_sources_images_too(tiny_run) -> None:
    plain = cost.work(tiny_run("er"), TINY)
    probed = cost.work(tiny_run("er", probes=True), TINY, Splits(train=33, test=12))
    assert probed.evaluation - plain.evaluation == 3 * (16 + 33 + 12)


def test_joint_is_one_phase_whose_last_batch_may_be_incomplete(tiny_run) -> None:
    work = cost.work(tiny_run("joint"), TINY)
    assert (work.first_steps, work.later_steps) == (2 * 6, 0)


def test_the_seconds_of_a_run_are_the_sum_over_its_pieces() -> None:
    timing = Timing(**NOTHING | {"later_steps": 0.5, "evaluation": 0.01, "memory_mib": 1e6})
    assert cost.seconds(Work(setup=3, later_steps=10, evaluation=100), timing) == 6.0


def test_pretraining_takes_its_epochs_and_one_evaluation(tiny_values) -> None:
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 7
    work = cost.pretraining_work(check(tiny_values), "origin", Splits(train=33, test=12))
    assert (work.first_steps, work.evaluation) == (7 * 4, 12)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"seed": 1}, True),
        ({"pretrained": False}, True),
        ({"hyperparameters": some_hyperparameters("twf") | {"lr": 0.7}}, True),
        ({"buffer": 8}, False),
        ({"batch_size": 4}, False),
        ({"precision": "bf16"}, False),
        ({"epochs": 3}, False),
        ({"held_out": 0.5}, False),
        ({"fidelity": {"F2": "paper"}}, False),
    ],
)
def test_runs_are_alike_where_all_that_takes_time_is_the_same(
    tiny_run, tiny_values, change, same
) -> None:
    params = check(tiny_values)
    first, second = (cost.alike(params, tiny_run("twf", **c)) for c in ({}, change))
    assert (first == second) == same


def test_counts_among_the_hyperparameters_take_time(tiny_run, tiny_values) -> None:
    params, values = check(tiny_values), some_hyperparameters("co2l")
    shapes = [
        cost.shape(params, tiny_run("co2l", hyperparameters=values | change))
        for change in ({}, {"tau": 0.1}, {"chunks": 1})
    ]
    assert shapes[0] == shapes[1] != shapes[2]


@pytest.mark.parametrize(
    ("works", "workers", "seconds"),
    [([], 2, 0.0), ([5.0], 3, 5.0), ([1.0, 1.0, 2.0], 2, 2.0), ([4.0, 3.0, 3.0], 1, 10.0)],
)
def test_workers_share_what_is_left(works, workers, seconds) -> None:
    assert cost.makespan(works, workers) == seconds


def test_a_run_on_a_cpu_holds_the_mapped_file_too(tiny_run) -> None:
    image = 16 * 16 * 3
    run = tiny_run("er")
    assert cost.data_on_device(run, TINY, 16, cpu=False) == (2 * 44 + 16) * image
    assert cost.data_on_device(run, TINY, 16, cpu=True) == (3 * 44 + 2 * 16) * image
    joining = cost.data_on_device(tiny_run("icarl"), TINY, 16, cpu=False)
    assert joining == (2 * 44 + 16 + 2 * 16) * image
