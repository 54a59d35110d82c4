"""Progress of long work: a line on stderr now and then, with an estimate of what is left."""

import math
import time

from twf.errors import note

LINE_EVERY = 10.0  # seconds between two lines, and until a first estimate


class Progress:
    """Prints what is done of some work of `total` steps, of about so many `parts` each."""

    def __init__(self, title: str, total: int, begins: str = "", parts: int = 1) -> None:
        self.title, self.total, self.parts = title, total, parts
        self.steps = self.parts_done = 0  # the latter of the step that goes on
        self.start, self.shown = time.monotonic(), -math.inf
        self.first: tuple[float, float] | None = None  # when, and after what, parts began here
        if begins:
            self._print(begins)

    def __call__(self, steps: int, note: str, parts: int = 0) -> None:
        """So many more steps are done; and `parts` of the next one, by an earlier process."""
        now = time.monotonic()
        self.steps += steps
        self.parts_done = parts
        if now - self.shown >= LINE_EVERY or self.steps == self.total:
            self.shown = now
            self._print(f"{self.steps}/{self.total} after {now - self.start:.0f} s  {note}")

    def part(self) -> None:
        """One more part of the step that goes on is done; a long step's give an estimate, once."""
        now = time.monotonic()
        self.parts_done += 1
        share = min(self.parts_done / self.parts, 1.0)
        done = self.steps + share
        began, before = self.first = self.first or (now, done)  # what comes before it comes once
        if done > before and now - max(began, self.shown) >= LINE_EVERY:
            self.first = math.inf, 0.0  # no other
            left = duration((now - began) / (done - before) * (self.total - done))
            so_far = f"{self.steps}/{self.total} after {now - self.start:.0f} s"
            self._print(f"{so_far}, and {share:.0%} of the next: about {left} left")

    def _print(self, text: str) -> None:
        note(f"{self.title}: {text}")


def duration(seconds: float) -> str:
    """As one says it of what is estimated: `40 s`, `25 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
