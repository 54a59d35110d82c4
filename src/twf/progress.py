"""Progress of long work: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

LINE_EVERY = 10.0  # seconds between two lines in a log, and until a first estimate
BAR_EVERY = 0.5  # seconds between two changes of a bar within a step


class Progress:
    """Is told what is done of some work, and says so now and then: called with steps and a note.

    A step may have parts, of which it is told too; that is cheap, for thousands in a second.
    """

    def __init__(self, total: int | None, parts: int | None) -> None:
        self.total = total  # steps; None where that is not known
        self.parts = parts  # of a step, about
        self.done = 0
        self.parts_done = 0  # of the step that goes on
        self.parts_before = 0  # of these, those that an earlier process did
        self.since = self.now = self.start = time.monotonic()  # the first of them was done

    def __call__(self, steps: int, note: str, parts: int = 0) -> None:
        """So many more steps are done; and `parts` of the next one, by an earlier process."""
        self.done += steps
        self.parts_done = self.parts_before = parts
        self.now = time.monotonic()
        self.show(note)

    def part(self) -> None:
        """One more part of the step that goes on is done."""
        self.now = time.monotonic()
        self.parts_done += 1
        if self.parts_done == self.parts_before + 1:
            self.since = self.now
        elif self.parts is not None:
            self.show_part(min(self.parts_done / self.parts, 1.0))

    def show(self, note: str) -> None:
        """Say how far it has come."""

    def show_part(self, share: float) -> None:
        """Say how far it has come, where it is time; `share` is of the step that goes on."""


class _Bar(Progress):
    def __init__(self, total: int | None, parts: int | None, update: Callable[..., object]) -> None:
        super().__init__(total, parts)
        self.update = update
        self.shown = -math.inf

    def show(self, note: str) -> None:
        self.update(completed=self.done, note=note)

    def show_part(self, share: float) -> None:
        if self.now - self.shown >= BAR_EVERY:
            self.shown = self.now
            self.update(completed=self.done + share)


class _Lines(Progress):
    def __init__(self, title: str, total: int | None, parts: int | None) -> None:
        super().__init__(total, parts)
        self.title = title
        self.shown = -math.inf
        self.estimated = False

    def show(self, note: str) -> None:
        if self.now - self.shown >= LINE_EVERY or self.done == self.total:
            self.shown = self.now
            self.say(f"{self._so_far()}  {note}")

    def show_part(self, share: float) -> None:
        """Once, where a step takes longer than a line should keep one waiting."""
        if self.estimated or self.now - max(self.since, self.shown) < LINE_EVERY:
            return
        self.estimated = True
        assert self.total is not None and self.parts is not None
        seconds = (self.now - self.since) / (self.parts_done - self.parts_before - 1)  # of a part
        left = seconds * self.parts * (self.total - self.done - share)
        said = f"{self._so_far()}, and {share:.0%} of the next"
        self.say(f"{said}: about {duration(left)} left")

    def say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a full disk costs the log a line, not the work
            print(f"{self.title}: {text}", file=sys.stderr, flush=True)

    def _so_far(self) -> str:
        return f"{self.done}/{self.total or '?'} after {self.now - self.start:.0f} s"


@contextlib.contextmanager
def progress(
    title: str, total: int | None, begins: str = "", parts: int | None = None
) -> Iterator[Progress]:
    """Yield what is to be told of `total` steps of about `parts` parts each.

    `begins` is said before the first of them. In a log, where a step with parts takes long, its
    first parts give an estimate of the time that is left.
    """
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            "{task.fields[note]}",
        )
        with Bar(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total, note=begins)
            yield _Bar(total, parts, lambda **said: bar.update(task, **said))
        return
    lines = _Lines(title, total, parts)
    if begins:
        lines.say(begins)
    yield lines


def duration(seconds: float) -> str:
    """As one says it of what is estimated: `40 s`, `25 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
