"""Progress of long work: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator

LINE_EVERY = 10.0  # seconds between two lines in a log, and until a first estimate


class Progress:
    """Is told what is done of some work, and shows that: called with steps and a note.

    A step may have parts, of which it is told too; that is cheap, for thousands in a second.
    """

    def __init__(self, title: str, total: int, parts: int | None, show: Callable[..., object]):
        self.title = title
        self.total = total  # steps
        self.parts = parts  # of a step, about
        self.show = show  # what moves a bar
        self.done = 0
        self.parts_done = 0  # of the step that goes on
        self.parts_before = 0  # of these, those that an earlier process did
        self.start = self.since = time.monotonic()  # the first part of this step was done
        self.shown = -math.inf  # the last line
        self.estimated = False

    def __call__(self, steps: int, note: str, parts: int = 0) -> None:
        """So many more steps are done; and `parts` of the next one, by an earlier process."""
        self.done += steps
        self.parts_done = self.parts_before = parts
        now = time.monotonic()
        self.show(completed=self.done, note=note)
        if now - self.shown >= LINE_EVERY or self.done == self.total:
            self.shown = now
            self.say(f"{self._so_far(now)}  {note}")

    def part(self) -> None:
        """One more part of the step that goes on is done.

        In a log, the first ones of a long step give an estimate of the time that is left.
        """
        now = time.monotonic()
        self.parts_done += 1
        if self.parts_done == self.parts_before + 1:
            self.since = now
            return
        assert self.parts is not None
        share = min(self.parts_done / self.parts, 1.0)
        self.show(completed=self.done + share)
        if not self.estimated and now - max(self.since, self.shown) >= LINE_EVERY:
            self.estimated = True
            seconds = (now - self.since) / (self.parts_done - self.parts_before - 1)  # of a part
            left = duration(seconds * self.parts * (self.total - self.done - share))
            self.say(f"{self._so_far(now)}, and {share:.0%} of the next: about {left} left")

    def say(self, text: str) -> None:
        """Print a line in a log."""
        if not sys.stderr.isatty():
            with contextlib.suppress(OSError):  # a full disk costs the log a line, not the work
                print(f"{self.title}: {text}", file=sys.stderr, flush=True)

    def _so_far(self, now: float) -> str:
        return f"{self.done}/{self.total} after {now - self.start:.0f} s"


@contextlib.contextmanager
def progress(
    title: str, total: int, begins: str = "", parts: int | None = None
) -> Iterator[Progress]:
    """Yield what is to be told of `total` steps of about `parts` parts each.

    `begins` is said before the first of them.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console, hidden = Console(stderr=True), not sys.stderr.isatty()
    with Bar(*columns, "{task.fields[note]}", console=console, disable=hidden) as bar:
        task = bar.add_task(title, total=total, note=begins)
        told = Progress(title, total, parts, lambda **changes: bar.update(task, **changes))
        if begins:
            told.say(begins)
        yield told


def duration(seconds: float) -> str:
    """As one says it of what is estimated: `40 s`, `25 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
