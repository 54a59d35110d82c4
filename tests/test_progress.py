"""Progress in a log and on a terminal."""

from __future__ import annotations

import io
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twf import progress as module
from twf.progress import LINE_EVERY, progress


class Clock:
    """In place of `time.monotonic`."""

    def __init__(self, now: float) -> None:
        self.now = now

    def monotonic(self) -> float:
        return self.now


def lines_of(durations: list[float], start: float = 0.5) -> list[str]:
    """What is printed in a log when the steps take `durations` seconds."""
    clock, log = Clock(start), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        patch.setattr(sys, "stderr", log)
        with progress("work", len(durations)) as advance:
            for i, seconds in enumerate(durations):
                clock.now += seconds
                advance(1, f"step {i}")
    return log.getvalue().splitlines()


def test_short_work_prints_its_first_and_its_last_line():
    assert lines_of([0.1] * 50) == [
        "work: 1/50 after 0 s  step 0",
        "work: 50/50 after 5 s  step 49",
    ]


def test_long_work_prints_a_line_now_and_then():
    assert lines_of([3.0] * 9) == [
        "work: 1/9 after 3 s  step 0",
        "work: 5/9 after 15 s  step 4",
        "work: 9/9 after 27 s  step 8",
    ]


def test_slow_steps_print_a_line_each():
    assert len(lines_of([60.0] * 4)) == 4


def test_work_of_one_step_prints_one_line():
    assert lines_of([1.0]) == ["work: 1/1 after 1 s  step 0"]


@given(st.lists(st.floats(0, 25), min_size=1, max_size=60), st.floats(0, 1e6))
def test_the_first_and_last_step_always_print_and_others_keep_their_distance(durations, start):
    lines = lines_of(durations, start)
    total = len(durations)
    steps = [int(line.split()[1].split("/")[0]) for line in lines]
    assert steps[0] == 1 and steps[-1] == total
    assert steps == sorted(set(steps)), "no step is told twice"
    for before, after in pairwise(steps[:-1]):  # the last one need not wait
        assert sum(durations[before:after]) >= LINE_EVERY - 1e-6


def test_several_steps_at_once_count():
    log = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", log)
        with progress("work", 7) as advance:
            advance(3, "a")
            advance(4, "b")
    assert [line.split()[1] for line in log.getvalue().splitlines()] == ["3/7", "7/7"]


def test_a_terminal_gets_a_bar():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        with progress("work", 2) as advance:
            advance(1, "loss 0.5")
            advance(1, "loss 0.25")
    said = terminal.getvalue()
    assert "work" in said and "2/2" in said and "loss 0.25" in said
    assert "after" not in said


def test_a_log_that_cannot_be_written_does_not_end_the_work():
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", Full())
        with progress("work", 2) as advance:
            advance(1, "a")
            advance(1, "b")
