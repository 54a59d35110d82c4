"""Tasks, the order of classes, and images held out for validation."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from twf.errors import UserError
from twf.learning import tasks


@pytest.mark.parametrize(
    ("order", "expected"),
    [([0, 1, 2, 3], [[1, 4, 5], [0, 2, 3]]), ([3, 0, 2, 1], [[0, 4, 5], [1, 2, 3]])],
)
def test_tasks_follow_the_order_of_classes(
    monkeypatch: pytest.MonkeyPatch, order: list[int], expected: list[list[int]]
) -> None:
    """Officially, that of their numbers."""
    assert tasks.class_order(6).tolist() == [0, 1, 2, 3, 4, 5]
    monkeypatch.setattr(tasks, "class_order", lambda classes: torch.tensor(order))
    labels = torch.tensor([3, 1, 2, 2, 0, 0])
    parts = [part.tolist() for part in tasks.split(labels, tasks=2, classes=4)]
    assert parts == expected


@given(st.integers(2, 300), st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_held_out_and_kept_images_are_disjoint_and_together_all(
    count: int, share: float, seed: int
) -> None:
    labels = torch.zeros(count, dtype=torch.int64)
    if not 0 < round(share * count) < count:
        with pytest.raises(UserError, match=f"of {count} training images"):
            tasks.hold_out(labels, share, seed)
        return
    train, held_out = tasks.hold_out(labels, share, seed)
    assert len(held_out) == round(share * count)
    assert all(part.tolist() == sorted(part.tolist()) for part in (train, held_out))
    assert sorted(train.tolist() + held_out.tolist()) == list(range(count))


def test_the_seed_alone_decides_what_is_held_out() -> None:
    labels = torch.arange(100)
    _, held_out = tasks.hold_out(labels, 0.1, seed=0)
    assert held_out.tolist() == [5, 16, 20, 36, 52, 72, 82, 90, 93, 94]  # on every machine
    assert not torch.equal(tasks.hold_out(labels, 0.1, seed=1)[1], held_out)


def test_a_search_evaluates_on_training_images_that_it_does_not_train_on(tiny_dataset) -> None:
    searched = tasks.without_test_set(tiny_dataset, 0.25, seed=0)
    known, trained, evaluated = (
        {image.numpy().tobytes() for image in images}
        for images in (tiny_dataset.train_images, searched.train_images, searched.test_images)
    )
    assert trained | evaluated == known and not trained & evaluated
    assert len(searched.test_labels) == 11
