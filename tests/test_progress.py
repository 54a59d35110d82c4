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


@pytest.mark.parametrize(
    ("durations", "steps"),
    [([0.1] * 50, [1, 50]), ([3.0] * 9, [1, 5, 9]), ([60.0] * 4, [1, 2, 3, 4]), ([1.0], [1])],
)
def test_the_first_line_and_the_last_are_printed_and_others_now_and_then(durations, steps):
    total, each = len(durations), durations[0]
    assert lines_of(durations) == [
        f"work: {step}/{total} after {step * each:.0f} s  step {step - 1}" for step in steps
    ]


@given(st.lists(st.floats(0, 25), min_size=1, max_size=60), st.floats(0, 1e6))
def test_the_first_and_last_step_always_print_and_others_keep_their_distance(durations, start):
    lines = lines_of(durations, start)
    total = len(durations)
    steps = [int(line.split()[1].split("/")[0]) for line in lines]
    assert steps[0] == 1 and steps[-1] == total
    assert steps == sorted(set(steps)), "no step is told twice"
    for before, after in pairwise(steps[:-1]):  # the last one need not wait
        assert sum(durations[before:after]) >= LINE_EVERY - 1e-6


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def said_in(log: io.StringIO, *advances: tuple[int, str]) -> str:
    """What is printed into `log` by so many steps at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", log)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        with progress("work", sum(steps for steps, _ in advances)) as advance:
            for words in advances:
                advance(*words)
    return log.getvalue()


def test_several_steps_at_once_count():
    lines = said_in(io.StringIO(), (3, "a"), (4, "b")).splitlines()
    assert [line.split()[1] for line in lines] == ["3/7", "7/7"]


def test_a_terminal_gets_a_bar():
    said = said_in(Terminal(), (1, "loss 0.5"), (1, "loss 0.25"))
    assert "work" in said and "2/2" in said and "loss 0.25" in said
    assert "after" not in said


def test_a_log_that_cannot_be_written_does_not_end_the_work():
    assert said_in(Full(), (1, "a"), (1, "b")) == ""


def estimates_of(seconds: float, parts: int, before: int = 0) -> list[str]:
    """What a log says of 4 steps of 100 parts each, `seconds` a part, after so many of them."""
    clock, log = Clock(5.0), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        patch.setattr(sys, "stderr", log)
        with progress("work", 4, "begins", parts=100) as told:
            if before:
                told(0, "resumed", before)
            clock.now += 20.0  # until the first part: what is made once
            for part in range(1, parts + 1):
                clock.now += seconds
                told.part()
                if part % 100 == 0:
                    told(1, "a step")
    return log.getvalue().splitlines()


def test_a_long_step_gives_an_estimate_after_its_first_parts_and_once():
    begins, estimate, first, *_ = estimates_of(2.0, 210)
    assert begins == "work: begins"
    # five parts after the first one, each of 2 s, of 400
    assert estimate == "work: 0/4 after 32 s, and 6% of the next: about 13 min left"
    assert first == "work: 1/4 after 220 s  a step"
    assert sum("left" in line for line in estimates_of(2.0, 400)) == 1


def test_what_an_earlier_process_did_of_a_step_counts_but_not_as_time_of_this_one():
    *_, estimate = estimates_of(2.0, 10, before=50)
    assert estimate == "work: 0/4 after 32 s, and 56% of the next: about 11 min left"


def test_short_steps_give_no_estimate():
    assert not [line for line in estimates_of(0.05, 400) if "left" in line]


def test_a_bar_moves_within_a_step():
    log = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stderr", log)
        patch.setattr(module, "BAR_EVERY", 0.0)
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", "100")
        with progress("work", 1, "begins", parts=4) as told:
            for _ in range(3):
                told.part()
            assert told.done == 0 and told.parts_done == 3
    assert "begins" in log.getvalue()


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (89, "89 s"), (150, "2 min"), (7200, "2.0 h")]
)
def test_durations_are_said_as_one_would(seconds, said):
    assert module.duration(seconds) == said
