"""What a terminal shows of the workflow: what is to do, each job that ended, the time that is left.

Snakemake finds this package by its name, and `workflow/profiles/default` asks for it. Errors and
warnings are shown whole; Snakemake's own log goes to its file in `.snakemake/log`, and to the
terminal too with `--dry-run`, `--verbose` or `--printshellcmds`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping
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
    *("Using workflow specific profile", "Assuming unrestricted", "Using shell", "Provided cores"),
    *("Conda environments: ignored", "Select jobs to execute", "Rules claiming"),
)
INTERRUPTED = "Terminating processes on user request"
STOPPED = "stopping: what trains saves its state, and the same command goes on from there"
HIDDEN = {LogEvent.WORKFLOW_STARTED, LogEvent.JOB_STARTED, LogEvent.PROGRESS, LogEvent.SHELLCMD}


class LogHandler(LogHandlerBase):
    """Prints a line for each job that ended, and Snakemake's own text for what goes wrong."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = True
    needs_rulegraph = False

    def __post_init__(self) -> None:
        settings = self.common_settings
        self.whole = settings.dryrun or settings.verbose or settings.printshellcmds
        self.stream = sys.stdout if settings.stdout or settings.dryrun else sys.stderr
        formatter = DefaultFormatter(settings.quiet, settings.show_failed_logs)
        self.plain = ColorizingTextHandler(settings.nocolor, self.stream, formatter=formatter)
        self.to_do: Counter[str] = Counter()  # jobs by rule
        self.ended: Counter[str] = Counter()
        self.begun: dict[int, tuple[float, dict[str, Any]]] = {}  # by job
        self.first_run = 0.0  # when it began
        self.interrupted = False

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if not self.interrupted and record.getMessage().startswith(INTERRUPTED):
            self.interrupted = True
            _stop_jobs()
            self._say(STOPPED)
        elif self.interrupted:  # what Snakemake says of jobs that were told to stop
            pass
        elif self.whole or record.levelno >= logging.WARNING:
            self.plain.emit(record)
        elif event == LogEvent.RUN_INFO:
            self._plan(vars(record)["stats"])
        elif event == LogEvent.JOB_INFO:
            self._begin(vars(record))
        elif event == LogEvent.JOB_FINISHED:
            self._end(vars(record)["job_id"])
        elif event not in HIDDEN and not record.getMessage().startswith(NOISE):
            self.plain.emit(record)

    def _say(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def _plan(self, jobs: Mapping[str, int]) -> None:
        self.to_do = Counter({rule: count for rule, count in jobs.items() if rule != "total"})
        self.ended.clear()
        others = ", ".join(f"{count} {rule}" for rule, count in self.to_do.items() if rule != RUN)
        count = self.to_do[RUN]
        runs = [f"{count} run{'s' * (count > 1)}"] if count else []
        self._say("to do: " + "; ".join([*runs, *([f"other jobs: {others}"] if others else [])]))

    def _begin(self, job: dict[str, Any]) -> None:
        now = time.monotonic()
        self.begun[job["jobid"]] = (now, job)
        first = job["rule_name"] == RUN and not self.first_run
        if WHY in (text := job["rule_msg"] or ""):
            self._say(f"begun: {text}")  # what is made again, and why
        elif first or job["rule_name"] == PRETRAIN:
            self._say(f"begun: {_name(job)}; its log: {' '.join(job['log'] or [])}")
        if first:
            self.first_run = now

    def _end(self, number: int) -> None:
        now = time.monotonic()
        began, job = self.begun.pop(number, (now, {"rule_name": "", "rule_msg": f"job {number}"}))
        self.ended[job["rule_name"]] += 1
        text, took = _name(job), duration(now - began)
        if job["rule_name"] == RUN:
            done, total = self.ended[RUN], self.to_do[RUN]
            text = f"[{done}/{total}] {text}{_result(job['log'])}"
            seconds = (now - self.first_run) / done * (total - done)
            took += f"; about {duration(seconds)} left" if done < total else ""
        self._say(f"{text} ({took})")


def _stop_jobs() -> None:
    """Pass the interruption on: SIGINT may have come to Snakemake alone, which waits for jobs."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            process.terminate()


def _name(job: Mapping[str, Any]) -> str:
    """What a job is, without why it is done."""
    text = (job["rule_msg"] or "").partition(WHY)[0]
    return text or " ".join([job["rule_name"], *map(str, job["wildcards"].values())])


def _result(logs: list[str] | None) -> str:
    """The accuracies that a run's log ends with."""
    try:
        last = Path((logs or [])[0]).read_text(encoding="utf-8").splitlines()[-1]
    except (OSError, IndexError):  # on another machine, or empty
        return ""
    _, marked, accuracies = last.partition("final average accuracy ")
    return f": {accuracies}" if marked else ""
