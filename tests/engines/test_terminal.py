"""What a terminal shows of the workflow."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_twf import LogHandler

Say = Callable[..., None]


def handler(**changes: Any) -> Say:
    """`say(message, event, level, **fields)`, to a handler with these settings of Snakemake."""
    settings = {"dryrun": False, "verbose": False, "printshellcmds": False, "stdout": True}
    settings |= {"nocolor": True, "quiet": set(), "show_failed_logs": True, "debug_dag": False}
    made = LogHandler(SimpleNamespace(**settings | changes), None)

    def say(
        message: str | None, event: LogEvent | None = None, level: int = logging.INFO, **fields: Any
    ) -> None:
        record = logging.LogRecord("snakemake", level, __file__, 0, message, None, None)
        vars(record).update(fields | ({} if event is None else {"event": event}))
        made.handle(record)

    return say


def begin(say: Say, job: int, rule: str, **fields: Any) -> None:
    fields = {"rule_msg": None, "log": [], "wildcards": {}, "indent": False} | fields
    fields |= {"input": [], "output": [], "benchmark": None, "reason": "new", "resources": {}}
    fields |= {"local": False, "is_checkpoint": False, "priority": 0, "threads": 1}
    say("a job", LogEvent.JOB_INFO, jobid=job, rule_name=rule, **fields)


def end(say: Say, job: int) -> None:
    say(f"Finished jobid: {job}", LogEvent.JOB_FINISHED, job_id=job)


def test_jobs_are_counted_and_each_run_says_its_accuracy_and_the_time_that_is_left(
    tmp_path, capsys, monkeypatch
):
    seconds = iter([0.0, 10.0, 40.0, 70.0, 100.0, 130.0])
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    log = tmp_path / "a.log"
    log.write_text("much\nx.parquet: final average accuracy Class-IL 1.00 %, Task-IL 2.00 %\n")
    say = handler()
    say("Building DAG of jobs...")
    say("stats", LogEvent.RUN_INFO, stats={"data": 1, "run": 4, "total": 5})
    begin(say, 1, "data", wildcards={"data": "digits"})
    end(say, 1)
    begin(say, 2, "run", rule_msg="run a of study demo", log=[str(log)])
    end(say, 2)
    begin(say, 3, "run", rule_msg="run b of study demo: lr: 0.1 -> 0.2", log=[str(log)])
    say(None, LogEvent.PROGRESS, done=3, total=5)
    end(say, 3)
    assert capsys.readouterr().out.splitlines() == [
        "Building DAG of jobs...",
        "to do: 1 data, 4 run",
        "data digits (10 s)",
        f"begun: run a of study demo; its log: {log}",
        "[1/4] run a of study demo: Class-IL 1.00 %, Task-IL 2.00 % (30 s; about 2 min left)",
        "begun: run b of study demo: lr: 0.1 -> 0.2",
        "[2/4] run b of study demo: Class-IL 1.00 %, Task-IL 2.00 % (30 s; about 2 min left)",
    ]


def test_what_goes_wrong_is_shown_whole_with_its_log_and_all_where_it_is_asked_for(
    tmp_path, capsys
):
    log = tmp_path / "a.log"
    log.write_text("the cause\n")
    say = handler()
    fields = {"rule_name": "run", "rule_msg": None, "jobid": 2, "input": [], "output": ["a"]}
    fields |= {"log": [str(log)], "conda_env": None, "shellcmd": "twf run", "aux": {}}
    say("Error in rule run", LogEvent.JOB_ERROR, logging.ERROR, **fields)
    say("careful", level=logging.WARNING)
    said = capsys.readouterr().out
    for text in ("Error in rule run", "twf run", "the cause", "careful"):
        assert text in said
    for setting in ("dryrun", "verbose"):
        begin(handler(**{setting: True}), 1, "data", wildcards={"data": "digits"})
        assert "rule data" in capsys.readouterr().out
