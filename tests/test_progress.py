"""Progress in a log and on a terminal."""

import io
import sys
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twf import progress as module
from twf.progress import LINE_EVERY, Progress


class Clock:
    """In place of `time.monotonic`."""

    def __init__(self) -> None:
        self.now = 5.0

    def monotonic(self) -> float:
        return self.now


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def printed(
    log: io.StringIO, total: int, parts: int, work: Callable[[Progress, Clock], object]
) -> list[str]:
    """The lines in `log` of some work, by a clock that the work moves on."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        patch.setattr(sys, "stderr", log)
        work(Progress("work", total, "begins", parts), clock)
    return log.getvalue().splitlines()


@given(st.lists(st.floats(0, 25), min_size=1, max_size=60))
def test_the_first_and_last_step_always_print_and_others_keep_their_distance(durations):
    total = len(durations)

    def work(told: Progress, clock: Clock) -> None:
        for i, seconds in enumerate(durations):
            clock.now += seconds
            told(1, f"step {i}")

    begins, *lines = printed(io.StringIO(), total, 1, work)
    assert begins == "work: begins"
    assert lines[0] == f"work: 1/{total} after {durations[0]:.0f} s  step 0"
    steps = [int(line.split()[1].split("/")[0]) for line in lines]
    assert steps[-1] == total and steps == sorted(set(steps)), "no step is told twice"
    for before, after in pairwise(steps[:-1]):  # the last one need not wait
        assert sum(durations[before:after]) >= LINE_EVERY - 1e-6


def long_steps(seconds: float, parts: int, before: int = 0) -> list[str]:
    """The lines of 4 steps of 100 parts each, `seconds` a part, after so many of them."""

    def work(told: Progress, clock: Clock) -> None:
        if before:
            told(0, "resumed", before)
        clock.now += 20.0  # until the first part: what is made once
        for part in range(1, parts + 1):
            clock.now += seconds
            told.part()
            if part % 100 == 0:
                told(1, "a step")

    return printed(io.StringIO(), 4, 100, work)


def test_a_long_step_gives_an_estimate_after_its_first_parts_and_once():
    """What an earlier process did of a step counts, but not as time of this one."""
    _, estimate, first, *others = long_steps(2.0, 400)
    # five parts after the first one, each of 2 s, of 400
    assert estimate == "work: 0/4 after 32 s, and 6% of the next: about 13 min left"
    assert first == "work: 1/4 after 220 s  a step"
    assert not [line for line in others if "left" in line]
    *_, estimate = long_steps(2.0, 10, before=50)
    assert estimate == "work: 0/4 after 32 s, and 56% of the next: about 11 min left"


def test_a_full_disk_ends_no_work():
    assert printed(Full(), 7, 2, lambda told, _: told(7, "loss 0.5")) == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (150, "2 min"), (7200, "2.0 h")]
)
def test_durations_are_said_as_one_would(seconds, text):
    assert module.duration(seconds) == text
