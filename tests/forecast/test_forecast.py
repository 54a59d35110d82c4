"""A study's forecast: where its times come from, what is kept, and what it adds up to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import yaml

from twf import files
from twf.data.registry import Splits
from twf.forecast import calibrations, cost, forecast
from twf.forecast.cost import Timing
from twf.gpus import cpu, nvidia, visible
from twf.jobs.run import execute
from twf.results import record, status
from twf.study import expand
from twf.study.params import Execution, Params

TIMING = Timing(
    setup=1.0,
    first_steps=0.1,
    later_steps=0.2,
    begin=0.0,
    end=0.0,
    evaluation=0.01,
    memory_mib=100.0,
    state_mib=2.0,
    checkpoint_mib=1.0,
    device_mib=None,
)
ER = "split-target.er.16.s0"


@pytest.fixture
def calibrated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was calibrated, in order: each shape takes what `TIMING` says; a start-up 3 seconds."""
    asked: list[str] = []

    def timing(params: Params, what: Any, *words: Any) -> Timing:
        asked.append(what if isinstance(what, str) else what.method)
        return TIMING

    monkeypatch.setattr(calibrations, "in_fresh_process", timing)
    monkeypatch.setattr(calibrations, "_start_up", lambda params, kind: (3.0, 0.5))
    monkeypatch.setattr(cpu, "cores", lambda: 2)
    monkeypatch.setattr(visible, "gpus", list)
    return asked


@pytest.fixture
def forecast_of() -> Callable[[Params], dict[str, Any]]:
    """`forecast_of(params)`: the forecast of the miniature study, on one thread."""

    def make(params: Params, execution: Execution = "plain") -> dict[str, Any]:
        plan = expand(params, "tiny")
        found = status.of_plan(params, plan)
        return forecast.forecast(params, plan, found, "cpu", 1, execution)

    return make


def by_method(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in found["runs"]}


def test_nothing_need_be_there_and_every_piece_is_added_up(
    tiny_project, tiny_values, calibrated, forecast_of
) -> None:
    found = forecast_of(Params.model_validate(tiny_values))
    assert sorted(calibrated) == sorted(["origin", *by_method(found)])
    er = by_method(found)["er"]
    steps, images = 2 * 2, 3 * 16  # two epochs of two full batches a task; evaluated three times
    seconds = 3.0 + 0.5 + 1.0 + steps * 0.1 + steps * 0.2 + images * 0.01
    assert er["seconds"] == pytest.approx(seconds)
    assert (er["runs"], er["measured"]) == (1, 0)
    assert found["pretraining"] == {"origin": pytest.approx(3.0 + 1.0 + 4 * 0.1 + 12 * 0.01)}
    runs = [row["seconds"] for row in found["runs"]]
    together = found["pretraining"]["origin"] + sum(runs)
    assert found["hours"] * 3600 == pytest.approx(together)
    wall = found["pretraining"]["origin"] + cost.makespan(runs, 2)
    assert (found["jobs"], found["wall_hours"] * 3600) == (2, pytest.approx(wall))
    assert found["disk"]["checkpoints_mib"] == 1.0
    assert found["disk"]["states_mib"] == 2 * 2 * 2.0
    pixels = (44 + 16 + 33 + 12) * 16 * 16 * 3
    assert found["disk"]["data_mib"] == pytest.approx(pixels / 2**20)


def test_what_was_timed_is_not_timed_again(tiny_inputs, calibrated, forecast_of) -> None:
    first = forecast_of(tiny_inputs)
    assert len(calibrated) == 12  # the source is there
    assert forecast_of(tiny_inputs)["runs"] == first["runs"]
    assert len(calibrated) == 12


@pytest.mark.parametrize("change", ["versions", "device", "damage"])
def test_other_versions_another_device_and_a_damaged_file_are_timed_anew(
    tiny_inputs, calibrated, forecast_of, monkeypatch, change
) -> None:
    forecast_of(tiny_inputs)
    if change == "versions":
        other = calibrations.versions() | {"torch": "1.0"}
        monkeypatch.setattr(calibrations, "versions", lambda: other)
    elif change == "device":
        monkeypatch.setattr(cpu, "cpu_name", lambda threads: f"Another, {threads} threads")
    else:
        files.CALIBRATION.write_bytes(files.CALIBRATION.read_bytes()[:100])
    forecast_of(tiny_inputs)
    assert len(calibrated) == 24


def test_another_shape_alone_is_timed(tiny_inputs, tiny_values, calibrated, forecast_of) -> None:
    forecast_of(tiny_inputs)
    calibrated.clear()
    er = tiny_values["benchmarks"]["split-target"]["methods"]["er"]
    er["lr"] = 0.07
    forecast_of(Params.model_validate(tiny_values))
    assert calibrated == []
    tiny_values["benchmarks"]["split-target"]["methods"]["co2l"]["chunks"] = 1
    forecast_of(Params.model_validate(tiny_values))
    assert calibrated == ["co2l"]


def test_records_of_like_runs_come_first(tiny_inputs, tiny_values, calibrated, forecast_of) -> None:
    run = expand(tiny_inputs, "tiny").runs[ER]
    execute(tiny_inputs, run, torch.device("cpu"))
    tiny_values["studies"]["tiny"]["seeds"] = [0, 1]
    more = Params.model_validate(tiny_values)
    found = by_method(forecast_of(more))
    assert "er" not in calibrated and "twf" in calibrated
    assert (found["er"]["runs"], found["er"]["measured"]) == (1, 1)
    (row,) = record.read(files.record_file("tiny", ER), ["seconds", "peak_memory_mib"]).to_pylist()
    assert found["er"]["seconds"] == pytest.approx(3.0 + row["seconds"])
    assert found["er"]["memory_mib"] == row["peak_memory_mib"]


def test_another_execution_has_times_of_its_own(
    tiny_inputs, tiny_values, calibrated, forecast_of
) -> None:
    execute(tiny_inputs, expand(tiny_inputs, "tiny").runs[ER], torch.device("cpu"))
    tiny_values["studies"]["tiny"]["seeds"] = [0, 1]
    more = Params.model_validate(tiny_values)
    forecast_of(more)
    before = len(calibrated)
    found = by_method(forecast_of(more, "compiled"))
    assert len(calibrated) == 2 * before + 1, "er, of which there is a record of plain steps"
    assert found["er"]["measured"] == 0


def test_records_of_another_device_or_torn_ones_do_not_count(
    tiny_inputs, calibrated, forecast_of, monkeypatch
) -> None:
    run = expand(tiny_inputs, "tiny").runs[ER]
    execute(tiny_inputs, run, torch.device("cpu"))
    device = calibrations.device_name("cpu", torch.get_num_threads())
    assert len(forecast.measured(tiny_inputs, device)) == 1
    assert forecast.measured(tiny_inputs, "Another, 1 thread") == {}
    path = files.record_file("tiny", ER)
    path.write_bytes(path.read_bytes()[:100])
    assert forecast.measured(tiny_inputs, device) == {}


def test_where_nothing_remains_nothing_is_timed(
    tiny_inputs, tiny_values, calibrated, forecast_of
) -> None:
    tiny_values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["er"]
    params = Params.model_validate(tiny_values)
    execute(params, expand(params, "tiny").runs[ER], torch.device("cpu"))
    found = forecast_of(params)
    assert (found["hours"], found["runs"], calibrated) == (0.0, [], [])
    forecast.show(found)


def test_the_kinds_of_runs_and_what_is_short_are_shown(
    tiny_project, tiny_values, calibrated, forecast_of, monkeypatch, capsys
) -> None:
    found = forecast_of(Params.model_validate(tiny_values))
    assert forecast.warnings(found) == []
    found["disk"]["free_mib"] = 1.0
    found["memory"]["free_mib"] = 150.0
    monkeypatch.setenv("COLUMNS", "120")
    forecast.show(found)
    said = capsys.readouterr().out
    for part in (
        "pretraining on origin",
        "split-target.derpp-pretraining",
        "calibrated",
        "with 2 jobs at once",
        "short: on the disk",
        "1 MiB free",
        "short: of memory, as 2 of the largest runs at once hold",
        "for a cluster's profile, pretrain: runtime: 10 * attempt\n",
        "for a cluster's profile, run: runtime: 10 * attempt, mem_mb: 1000 * attempt\n",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("seconds", "memory_mib", "expected"),
    [
        ([1.0], [], {"runtime": 10}),
        ([100.0, 400.0], [500.0], {"runtime": 10, "mem_mb": 1000}),  # 400 * 1.5 is 10 minutes
        ([401.0, 1.0], [700.0, 100.0], {"runtime": 20, "mem_mb": 2000}),
    ],
)
def test_a_cluster_is_asked_for_half_as_much_again(seconds, memory_mib, expected) -> None:
    assert forecast.resources(seconds, memory_mib) == expected


def test_gpus_share_the_jobs(tiny_values, monkeypatch) -> None:
    one, two = (Params.model_validate(tiny_values | {"gpu_slots": slots}) for slots in (1, 2))
    monkeypatch.setattr(cpu, "cores", lambda: 8)
    monkeypatch.setattr(visible, "gpus", lambda: [nvidia.Gpu("GPU-1", "A GPU")] * 2)
    assert forecast.jobs_at_once(one, "cpu", 1) == 8
    assert forecast.jobs_at_once(one, "cpu", 4) == 2
    assert forecast.jobs_at_once(one, "cuda", 1) == 2
    assert forecast.jobs_at_once(two, "cuda", 1) == 4
    assert forecast.jobs_at_once(two, "cuda", 4) == 2  # cores are as scarce
    assert calibrations.device_name("cuda", 1) == "A GPU"


def test_a_real_calibration_lies_in_a_process_of_its_own(tiny_inputs) -> None:
    run = expand(tiny_inputs, "tiny").runs[ER]
    timing = calibrations.in_fresh_process(tiny_inputs, run, "cpu", 1)
    assert timing is not None
    assert 0 < cost.seconds(cost.work(run, Splits(train=44, test=16)), timing) < 60
    assert calibrations.in_fresh_process(tiny_inputs, "origin", "cpu", 1) is not None


def test_a_calibration_takes_no_more_memory_than_its_share(tiny_inputs) -> None:
    """A large buffer, filled with zeros when it is made, against the limit of the process."""
    run = expand(tiny_inputs, "tiny").runs[ER].model_copy(update={"buffer": 10**6})
    assert calibrations.in_fresh_process(tiny_inputs, run, "cpu", 1, share_mib=500.0) is None


def test_what_does_not_fit_into_memory_is_named_and_not_counted(
    tiny_inputs, calibrated, forecast_of, monkeypatch
) -> None:
    whole, timing = forecast_of(tiny_inputs), calibrations.in_fresh_process
    files.CALIBRATION.unlink()

    def short(params: Params, what: Any, *words: Any) -> Timing | None:
        return None if what.method == "twf" else timing(params, what, *words)

    monkeypatch.setattr(calibrations, "in_fresh_process", short)
    found = forecast_of(tiny_inputs)
    assert found["too_large"] == ["split-target.twf"]
    assert "twf" not in by_method(found)
    left_out = by_method(whole)["twf"]["hours"]
    assert found["hours"] == pytest.approx(whole["hours"] - left_out)
    assert "of memory for split-target.twf" in forecast.warnings(found)[0]
    calibrated.clear()
    monkeypatch.setattr(calibrations, "in_fresh_process", timing)
    assert forecast_of(tiny_inputs)["too_large"] == []
    assert calibrated == ["twf"]  # what did not fit is tried again


def test_the_command_forecasts_and_the_second_time_imports_no_torch(tiny_inputs) -> None:
    values = yaml.safe_load(files.PARAMS.read_text())
    values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["er"]
    files.PARAMS.write_text(yaml.safe_dump(values))
    words = [sys.executable, "-m", "twf", "plan", "--json", "--forecast", "--device", "cpu"]
    first = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)["forecast"]
    assert [row["method"] for row in first["runs"]] == ["er"]
    assert files.CALIBRATION.exists()
    code = (
        f"import sys; sys.argv = ['twf', *{words[3:]}]\n"
        "from twf.cli import commands; commands.app(standalone_mode=False)\n"
        "sys.exit(str({'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "set()"
    assert json.loads(done.stdout)["forecast"]["runs"] == first["runs"]
