"""What a terminal shows of the workflow: what is to do, each job that ended, the time that is left.

Snakemake finds this package by its name; `workflow/profiles/default` asks for it. Errors are shown
whole, and all that Snakemake says with `--dry-run`, `--verbose` or `--printshellcmds`.
"""

import contextlib
import logging
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from snakemake.logging import ColorizingTextHandler, DefaultFormatter
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from twf.progress import duration

RUN, PRETRAIN = "run", "pretrain"  # the rules whose jobs take the time
WHY = ": "  # in a job's message, before what is not as planned
# Of no use to who waits: Snakemake says them in every call, or again and again.
NOISE = (
    *("Using ", "Assuming unrestricted", "Provided cores", "Rules claiming"),
    *("Conda environments: ignored", "Select jobs to execute"),
)
HIDDEN = {"workflow_started", "job_started", "progress", "shellcmd"}
INTERRUPTED = "Terminating processes on user request"
STOPPED = "stopping: what trains saves its state, and the same command goes on from there"


class LogHandler(LogHandlerBase):
    """Prints a line for each job that ended, and Snakemake's own text for what goes wrong."""

    writes_to_stream = has_formatter = True
    writes_to_file = has_filter = needs_rulegraph = False

    def __post_init__(self) -> None:
        settings = self.common_settings
        self.whole = settings.dryrun or settings.verbose or settings.printshellcmds
        self.stream = sys.stdout if settings.stdout or settings.dryrun else sys.stderr
        formatter = DefaultFormatter(settings.quiet, settings.show_failed_logs)
        self.plain = ColorizingTextHandler(settings.nocolor, self.stream, formatter=formatter)
        self.jobs: dict[int, tuple[float, Any]] = {}  # when each began, and its fields
        self.runs = self.runs_done = 0
        self.first_run = 0.0  # when it began
        self.interrupted = False

    def emit(self, record: Any) -> None:
        event, message = getattr(record, "event", None), record.getMessage()
        if self.interrupted:  # what Snakemake says of jobs that were told to stop
            return
        if message.startswith(INTERRUPTED):
            self.interrupted = True
            # SIGINT may have come to Snakemake alone, which waits for its jobs; what they started
            # (W&B's process) they end themselves
            for process in psutil.Process().children():
                with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                    process.terminate()
            self._say(STOPPED)
        elif self.whole or record.levelno >= logging.WARNING:
            self.plain.emit(record)
        elif event == LogEvent.RUN_INFO:
            self.runs, self.runs_done = record.stats.get(RUN, 0), 0
            jobs = (f"{count} {rule}" for rule, count in record.stats.items() if rule != "total")
            self._say(f"to do: {', '.join(jobs)}")
        elif event == LogEvent.JOB_INFO:
            self._begin(record)
        elif event == LogEvent.JOB_FINISHED and record.job_id in self.jobs:
            self._end(*self.jobs.pop(record.job_id))
        elif event not in HIDDEN and not message.startswith(NOISE):
            self.plain.emit(record)

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def _begin(self, job: Any) -> None:
        now = time.monotonic()
        self.jobs[job.jobid] = now, job
        first = job.rule_name == RUN and not self.first_run
        self.first_run = now if first else self.first_run
        if WHY in (text := job.rule_msg or ""):
            self._say(f"begun: {text}")  # what is made again, and why
        elif first or job.rule_name == PRETRAIN:
            self._say(f"begun: {_name(job)}; its log: {' '.join(job.log)}")

    def _end(self, began: float, job: Any) -> None:
        now = time.monotonic()
        text, took = _name(job), duration(now - began)
        if job.rule_name == RUN:
            self.runs_done += 1
            done, total = self.runs_done, self.runs
            text = f"[{done}/{total}] {text}{_result(job.log[0])}"
            left = duration((now - self.first_run) / done * (total - done))
            took += f"; about {left} left" if done < total else ""
        self._say(f"{text} ({took})")


def _name(job: Any) -> str:
    """What a job is, without why it is done."""
    text: str = (job.rule_msg or "").partition(WHY)[0]
    return text or " ".join([job.rule_name, *map(str, job.wildcards.values())])


def _result(log: str) -> str:
    """The accuracies that a run's log ends with."""
    with contextlib.suppress(OSError):  # it may be on another machine
        text = Path(log).read_text(encoding="utf-8")
        _, marked, accuracies = text.rpartition("final average accuracy ")
        return f": {accuracies.strip()}" if marked else ""
    return ""
