"""A study's forecast: where its times come from, what is kept, and what it adds up to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from twf import files
from twf.data.registry import Splits
from twf.forecast import cache, forecast, timing
from twf.forecast.work import Cost, Work, estimated, of_run, pretraining
from twf.gpus import cpu, nvidia, visible
from twf.jobs import code
from twf.results import status
from twf.study import expand
from twf.study.params import Network, Params

ER = "split-target.er.16.s0"
IMAGES = {"target": Splits(train=44, test=16), "origin": Splits(train=33, test=12)}
ASKED = Path("asked.txt")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Every run is timed at 10 seconds and 100 MiB, a start-up takes 3; gives who was timed."""

    def cost(params: Params, work: Work, *_: object) -> Cost:
        with ASKED.open("a") as file:
            file.write(f"{work.run.method}\n")
        return Cost(seconds=10.0, memory_mib=100.0)

    def asked() -> list[str]:
        names = ASKED.read_text().split() if ASKED.exists() else []
        ASKED.unlink(missing_ok=True)
        return names

    monkeypatch.setattr(timing, "cost", cost)
    monkeypatch.setattr(forecast, "_start_up", lambda kind: 3.0)
    monkeypatch.setattr(cpu, "cores", lambda: 2)
    monkeypatch.setattr(visible, "gpus", list)
    return asked


def forecast_of(params: Params, execution: Any = "plain") -> dict[str, Any]:
    """The forecast of the miniature study, on one thread."""
    plan = expand(params, "tiny")
    return forecast.forecast(params, plan, status.of_plan(params, plan), "cpu", 1, execution)


def seconds(found: dict[str, Any]) -> dict[str, float]:
    return {row["name"].split(".")[1]: row["seconds"] for row in found["runs"]}


def test_nothing_need_be_there_and_all_is_added_up(tiny_project, tiny_values, fake, capsys) -> None:
    params = Params.model_validate(tiny_values)
    found = forecast_of(params)
    assert set(fake()) == {r.method for r in expand(params, "tiny").runs.values()}
    assert set(seconds(found).values()) == {13.0}
    assert found["hours"] * 3600 == pytest.approx(13 * 13.0)
    assert found["wall_hours"] * 3600 == pytest.approx(13.0 + 12 * 13.0 / 2)
    assert found["resources"] == {
        rule: {"runtime": 10, "mem_mb": 1000} for rule in found["resources"]
    }
    assert (found["memory"]["run_mib"], found["unknown"], found["stopped"]) == (100.0, [], False)
    pixels = (44 + 16 + 33 + 12) * 16 * 16 * 3
    assert found["disk"]["data_mib"] == pytest.approx(pixels / 2**20)
    forecast.show(found)
    said = capsys.readouterr().out
    assert "pretraining.origin" in said and "split-target.derpp-pretraining" in said


@pytest.mark.parametrize(
    ("change", "again"),
    [("rate", 0), ("method", 1), *((c, 12) for c in ("execution", "torch", "device", "damage"))],
)
def test_what_was_timed_is_timed_again_only_where_its_cost_may_differ(
    tiny_inputs, tiny_values, fake, monkeypatch, change, again
) -> None:
    first = forecast_of(tiny_inputs)
    assert len(fake()) == 12  # the source is there
    hashed, edited = code.code_hash, code.method_module("twf")
    if change == "rate":
        tiny_values["benchmarks"]["split-target"]["methods"]["er"]["lr"] = 0.07
    elif change == "method":
        monkeypatch.setattr(code, "code_hash", lambda *r: "x" if edited in r else hashed(*r))
    elif change == "torch":
        monkeypatch.setattr(cache, "version", lambda name: "1.0")
    elif change == "device":
        monkeypatch.setattr(cpu, "cpu_name", lambda threads: f"Another, {threads} threads")
    elif change == "damage":
        files.CALIBRATION.write_bytes(files.CALIBRATION.read_bytes()[:100])
    execution = "compiled" if change == "execution" else "plain"
    assert forecast_of(Params.model_validate(tiny_values), execution)["runs"] == first["runs"]
    timed = fake()
    assert len(timed) == again and (again != 1 or timed == ["twf"])


@pytest.mark.parametrize("ended", ["SIGTERM", "SIGINT"])
def test_a_forecast_that_is_ended_says_and_keeps_what_it_has(
    tiny_project, tiny_values, fake, monkeypatch, ended
) -> None:
    def cost(params: Params, work: Work, *_: object) -> Cost:
        if work.run.method == "twf":
            os.kill(os.getpid(), signal.Signals[ended])
            time.sleep(60)
        return Cost(seconds=10.0, memory_mib=100.0)

    monkeypatch.setattr(timing, "cost", cost)
    monkeypatch.setattr(cache, "in_order", lambda works: sorted(works, key=lambda w: w.run.method))
    params, before = Params.model_validate(tiny_values), signal.getsignal(signal.SIGTERM)
    found = forecast_of(params)
    assert (found["unknown"], found["stopped"]) == (["split-target.twf"], True)
    assert len(found["runs"]) == 12
    assert signal.getsignal(signal.SIGTERM) == before
    forecast_of(params)
    assert fake() == []  # the patched one is asked for twf alone


def test_one_kind_is_timed_however_slow_the_machine(
    tiny_project, tiny_values, fake, monkeypatch, capsys
) -> None:
    def cost(*_: object) -> Cost:
        time.sleep(0.02)
        return Cost(seconds=10.0, memory_mib=100.0)

    monkeypatch.setattr(timing, "cost", cost)
    monkeypatch.setattr(cache, "PATIENCE", 0.01)
    found = forecast_of(Params.model_validate(tiny_values))
    assert len(json.loads(files.CALIBRATION.read_text())) == 1
    forecast.show(found)
    said = " ".join(capsys.readouterr().out.split())
    assert "timing was stopped: the same command goes on from here" in said


def test_a_kind_that_takes_long_is_broken_off(tiny_project, tiny_values, fake, monkeypatch) -> None:
    def cost(params: Params, work: Work, *_: object) -> Cost:
        time.sleep(0 if next(asked) else 60)
        return Cost(seconds=10.0, memory_mib=100.0)

    asked = iter([True, True, False])
    monkeypatch.setattr(timing, "cost", cost)
    monkeypatch.setattr(cache, "PATIENCE", 0.3)
    before = signal.getsignal(signal.SIGALRM)
    found = forecast_of(Params.model_validate(tiny_values))
    assert len(json.loads(files.CALIBRATION.read_text())) == 2 and found["stopped"]
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_runs_that_were_not_timed_are_estimated_by_others(tiny_run, tiny_values) -> None:
    params, large = Params.model_validate(tiny_values), Network(architecture="resnet18", width=8)
    work = {
        (method, network.width): of_run(params, tiny_run(method, network=network), IMAGES)
        for method in ("er", "twf")
        for network in (large, tiny_run("er").network)
    }
    cost = {
        key: Cost(seconds=w, memory_mib=w)
        for key, w in {("er", 4): 10.0, ("twf", 4): 30.0, ("er", 8): 50.0}.items()
    }
    known = [(work[key], cost) for key, cost in cost.items()]
    longer = of_run(params, tiny_run("twf", epochs=4), IMAGES)
    assert estimated(longer, known).seconds == pytest.approx(60)  # twice the epochs
    other = estimated(work["twf", 8], known)
    assert (other.seconds, other.memory_mib) == (pytest.approx(150), 50)  # 30 * 50 / 10
    assert other.estimated and not cost["twf", 4].estimated
    assert estimated(work["twf", 8], known[:2]) is None
    order = cache.in_order(
        [
            *work.values(),
            longer,
            of_run(params, pretraining(params, "origin", tiny_run("er")), IMAGES),
        ]
    )
    assert len(order) == 6 and {w.network for w in order[:2]} == {w.network for w in work.values()}
    assert order[-1].run.method == "twf"  # a second kind of a method on a network


def test_a_command_stopped_while_it_times_says_what_it_has(tiny_inputs) -> None:
    """By Ctrl-C, which a terminal sends to all of its processes."""
    stop = (
        "import os, signal, sys; sys.argv = 'twf plan --forecast --device cpu'.split()\n"
        "from twf.forecast import timing\n"
        "first, last = [], timing.cost\n"
        "def cost(*words):\n"
        "    if first: os.killpg(0, signal.SIGINT)\n"
        "    first.append(last(*words))\n"
        "    return first[0]\n"
        "timing.cost = cost\n"
        "from twf.cli import commands; commands.app()\n"
    )
    words = [sys.executable, "-c", stop]
    done = subprocess.run(words, capture_output=True, text=True, start_new_session=True)
    assert done.returncode == 0, done.stderr
    assert " jobs, " in done.stdout and "stopped: the same command goes on" in done.stdout
    assert "Traceback" not in done.stderr and "leaked" not in done.stderr
    assert len(json.loads(files.CALIBRATION.read_text())) == 1


def test_memory_that_a_system_does_not_tell_is_left_out(
    tiny_project, tiny_values, fake, macos, capsys
) -> None:
    found = forecast_of(Params.model_validate(tiny_values))
    assert found["memory"] == {"run_mib": 100.0, "free_mib": None}
    forecast.show(found)
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("memory")]
    assert "a run" in line and "free" not in line


@pytest.mark.parametrize(("fork", "imported"), [(True, "twf.cli"), (False, "twf.jobs.run")])
def test_a_job_imports_all_by_itself_where_a_fork_may_fail(monkeypatch, fork, imported) -> None:
    asked: list[str] = []
    monkeypatch.setattr(subprocess, "run", lambda words, check: asked.append(words[-1]))
    monkeypatch.setattr(cpu, "may_fork", lambda: fork)
    forecast._start_up("cpu")
    assert asked[0].replace(",", "").replace(";", "").split()[-1 if fork else 2] == imported


def test_of_several_gpus_the_one_with_least_free_memory_counts(nvml, monkeypatch) -> None:
    nvml.has(*(nvml.gpu(f"GPU-{mib}", memory=(mib * 2**20, 9 * 2**20)) for mib in (5, 3)))
    monkeypatch.setattr(visible, "gpus", lambda: list(nvidia.installed()[0]))
    assert forecast.free_memory_mib("cuda") == 3


@pytest.mark.parametrize(
    ("seconds", "memory_mib", "expected"),
    [
        ([1.0], None, {"runtime": 10}),
        ([100.0, 400.0], 500.0, {"runtime": 10, "mem_mb": 1000}),  # 400 * 1.5 is 10 minutes
        ([401.0, 1.0], 700.0, {"runtime": 20, "mem_mb": 2000}),
    ],
)
def test_a_cluster_is_asked_for_half_as_much_again(seconds, memory_mib, expected) -> None:
    assert forecast.resources(seconds, memory_mib) == expected


def test_the_command_forecasts_and_the_second_time_imports_no_torch(tiny_inputs) -> None:
    values = yaml.safe_load(files.PARAMS.read_text())
    values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["er"]
    files.PARAMS.write_text(yaml.safe_dump(values))
    code = (
        "import sys; sys.argv = 'twf plan --json --forecast --device cpu'.split()\n"
        "from twf.cli import commands; commands.app(standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    call = [sys.executable, "-c", code]
    first, second = (subprocess.run(call, stdout=subprocess.PIPE, text=True) for _ in range(2))
    assert (first.returncode, second.returncode) == (1, 0)
    found = [json.loads(done.stdout)["forecast"] for done in (first, second)]
    # the start-up is measured each time
    times = [seconds(one)["er"] - one["start_up_seconds"] for one in found]
    assert 0 < times[0] == pytest.approx(times[1])
