"""A study's forecast: what is timed, and what it adds up to."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from twf import files
from twf.errors import UserError
from twf.forecast import forecast, timing
from twf.gpus import cpu, visible
from twf.results import status
from twf.study import Run, expand
from twf.study.params import Params


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is timed, each at 10 seconds, on a machine of two cores."""
    names: list[str] = []

    def seconds(params: Params, run: Run, *_: object) -> float:
        names.append(run.benchmark if run.tasks == 1 else run.method)
        return 10.0

    monkeypatch.setattr(timing, "seconds", seconds)
    monkeypatch.setattr(cpu, "cores", lambda: 2)
    monkeypatch.setattr(visible, "gpus", list)
    return names


def forecast_of(params: Params, execution: Any = "plain") -> dict[str, Any]:
    """The forecast of the miniature study, on one thread."""
    plan = expand(params, "tiny")
    return forecast.forecast(params, plan, status.of_plan(params, plan), "cpu", 1, execution)


def test_nothing_need_be_there_and_all_is_added_up(tiny_project, tiny_values, asked, capsys):
    tiny_values["studies"]["tiny"]["seeds"] = [0, 1, 2]
    params = Params.model_validate(tiny_values)
    found = forecast_of(params)
    methods = {run.method for run in expand(params, "tiny").runs.values()}
    assert sorted(asked) == sorted(["pretraining.origin", *methods])  # seeds cost the same
    runs = 3 * len(methods)
    assert found["hours"] * 3600 == pytest.approx(10 + 10 * runs)
    assert found["wall_hours"] * 3600 == pytest.approx(10 + 10 * runs / 2)
    assert found["runtime"] == {"pretrain": 10, "run": 10}
    forecast.show(found)
    said = " ".join(capsys.readouterr().out.split())
    assert "pretraining.origin" in said and "split-target.derpp-pretraining" in said
    assert "estimated from a few steps" in said and "free " in said


def test_what_is_done_is_not_forecast(tiny_inputs, asked) -> None:
    runs = expand(tiny_inputs, "tiny").runs
    assert len(forecast_of(tiny_inputs)["runs"]) == len(asked) == len(runs)  # the source is there


@pytest.mark.parametrize(("change", "more"), [({"lr": 0.07}, 0), ({}, 0), (None, 1)])
def test_variants_are_timed_apart_only_where_they_cost_much_else(
    tiny_project, tiny_values, asked, change, more
) -> None:
    """A rate costs nothing; without a buffer, nothing is replayed."""
    variant: dict[str, Any] = {"title": "Changed", "methods": ["er"]}
    variant |= {"without_buffer": True} if change is None else {"hyperparameters": change}
    tiny_values["studies"]["tiny"]["experiments"]["other"] = {
        "title": "Other",
        "benchmarks": ["split-target"],
        "methods": ["er"],
        "variants": {"changed": variant},
    }
    forecast_of(Params.model_validate(tiny_values))
    assert asked.count("er") == 1 + more


def test_a_gpu_too_small_for_a_run_is_told(tiny_project, tiny_values, asked, monkeypatch) -> None:
    def short(*_: object) -> float:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(timing, "seconds", short)
    with pytest.raises(UserError, match=r"memory of the GPU.*pretraining\.origin"):
        forecast_of(Params.model_validate(tiny_values))


def test_steps_on_a_cpu_are_not_captured(tiny_project, tiny_values, asked) -> None:
    with pytest.raises(UserError, match="--execution plain"):
        forecast_of(Params.model_validate(tiny_values), "captured")


def test_a_cluster_is_asked_for_half_as_much_again(
    tiny_inputs, asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, minutes in ((1.0, 10), (400.0, 10), (401.0, 20)):
        monkeypatch.setattr(timing, "seconds", lambda *_, found=seconds: found)
        assert forecast_of(tiny_inputs)["runtime"] == {"run": minutes}


def test_the_command_times_real_steps(twf, tiny_project, tiny_values) -> None:
    tiny_values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["finetune", "twf"]
    files.PARAMS.write_text(json.dumps(tiny_values))
    found = json.loads(twf("plan --json --forecast --device cpu").out)["forecast"]
    assert len(found["runs"]) == 3 and all(row["seconds"][0] > 0 for row in found["runs"])
