"""Progress in a log and on a terminal."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from twf import progress as module
from twf.progress import Progress

Wait = Callable[[float], None]


@pytest.fixture
def printed(monkeypatch, capsys):
    """`printed(total, parts, work)`: the lines of `work(progress, wait)`, by a clock that waits."""

    def lines(total: int, parts: int, work: Callable[[Progress, Wait], object]) -> list[str]:
        waits = [5.0]
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: sum(waits)))
        work(Progress("work", total, "begins", parts), waits.append)
        return capsys.readouterr().err.splitlines()

    return lines


def test_the_first_and_last_step_always_print_and_others_keep_their_distance(printed):
    def work(told: Progress, wait: Wait) -> None:
        for i, seconds in enumerate([3, 4, 5, 12, 6, 4, 1]):
            wait(seconds)
            told(1, f"step {i}")

    assert printed(7, 1, work) == [
        "work: begins",
        "work: 1/7 after 3 s  step 0",
        "work: 4/7 after 24 s  step 3",  # the third came 9 s after the first, too soon
        "work: 6/7 after 34 s  step 5",
        "work: 7/7 after 35 s  step 6",
    ]


def test_a_long_step_gives_an_estimate_after_its_first_parts_and_once(printed):
    """What an earlier process did of a step counts, but not as time of this one."""

    def long_steps(parts: int, before: int) -> list[str]:
        def work(told: Progress, wait: Wait) -> None:
            if before:
                told(0, "resumed", before)
            wait(20.0)  # what is made once, until the first part
            for part in range(1, parts + 1):
                wait(2.0)
                told.part()
                if part % 100 == 0:
                    told(1, "a step")

        return printed(4, 100, work)

    _, estimate, first, *others = long_steps(400, before=0)
    # five parts after the first one, each of 2 s, of 400
    assert estimate == "work: 0/4 after 32 s, and 6% of the next: about 13 min left"
    assert first == "work: 1/4 after 220 s  a step"
    assert not [line for line in others if "left" in line]
    *_, estimate = long_steps(10, before=50)
    assert estimate == "work: 0/4 after 32 s, and 56% of the next: about 11 min left"


def test_a_full_disk_ends_no_work(monkeypatch):
    def full(_: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=full))
    Progress("work", 7, "begins")(7, "loss 0.5")


def test_durations_are_said_as_one_would():
    texts = [module.duration(seconds) for seconds in (0.4, 89, 150, 7200)]
    assert texts == ["0 s", "89 s", "2 min", "2.0 h"]
