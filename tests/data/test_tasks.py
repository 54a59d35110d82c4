"""Which images belong to a task, and which are held out."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from twf.data.tasks import hold_out, split, without_test_set


def test_tasks_take_classes_in_their_official_order():
    labels = torch.tensor([5, 0, 2, 1, 4, 3, 0])
    assert [p.tolist() for p in split(labels, tasks=3, classes=6)] == [[1, 3, 6], [2, 5], [0, 4]]


@given(st.integers(1, 400), st.floats(0.01, 0.99), st.integers(0, 5))
def test_held_out_and_kept_are_all_images_once(count, share, seed):
    kept, held_out = hold_out(torch.zeros(count, dtype=torch.long), share, seed)
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(count))
    assert len(held_out) == round(share * count)


def test_a_seed_holds_out_always_the_same_and_another_others():
    labels = torch.zeros(1000, dtype=torch.long)
    first, again, other = (hold_out(labels, 0.1, seed)[1] for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert len(set(first.tolist()) & set(other.tolist())) < 40  # 10 by chance


def test_every_image_is_held_out_equally_often():
    labels = torch.zeros(50, dtype=torch.long)
    counts = torch.zeros(50)
    for seed in range(2000):
        counts[hold_out(labels, 0.1, seed)[1]] += 1
    # 200 on average, with a standard deviation of sqrt(2000 * 0.1 * 0.9) = 13.4
    assert counts.min() > 200 - 5 * 13.4
    assert counts.max() < 200 + 5 * 13.4


def test_a_search_evaluates_on_training_images_that_it_does_not_train_on(tiny_dataset):
    searched = without_test_set(tiny_dataset, 0.25, seed=0)
    known = {image.numpy().tobytes() for image in tiny_dataset.train_images}
    trained = {image.numpy().tobytes() for image in searched.train_images}
    evaluated = {image.numpy().tobytes() for image in searched.test_images}
    assert trained | evaluated == known
    assert not trained & evaluated
    assert len(searched.test_labels) == 11
