"""Progress of long work: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

LINE_EVERY = 10.0  # seconds between two lines in a log

Advance = Callable[[int, str], None]


@contextlib.contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """Yield `advance(steps, note)`; `total` steps are the whole work, where that is known."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        columns = (
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            "{task.fields[note]}",
        )
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total, note="")
            yield lambda steps, note: bar.update(task, advance=steps, note=note)
        return
    done, start, last = 0, time.monotonic(), -LINE_EVERY

    def line(steps: int, note: str) -> None:
        nonlocal done, last
        done += steps
        now = time.monotonic()
        if now - last >= LINE_EVERY or done == total:
            last, part = now, f"{done}/{total or '?'} after {now - start:.0f} s"
            with contextlib.suppress(OSError):  # a full disk costs the log a line, not the work
                print(f"{title}: {part}  {note}", file=sys.stderr, flush=True)

    yield line
