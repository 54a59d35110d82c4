"""Precision and execution of a job, together."""

from __future__ import annotations

import pytest
import torch
from made import execute

from twf.errors import UserError
from twf.gpus import cpu
from twf.jobs.provenance import set_up

CPU = torch.device("cpu")


def test_compiled_steps_in_bfloat16_are_refused_where_they_were_wrong(
    tiny_inputs, tiny_run, monkeypatch
):
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: False)
    with pytest.raises(UserError, match="plain"):
        execute(tiny_inputs, tiny_run("twf", precision="bf16"), CPU, execution="compiled")
    assert set_up(CPU, "plain", "bf16", {}).precision == "bf16"
    assert set_up(CPU, "compiled", "fp32", {}).precision == "fp32"
    monkeypatch.setattr(cpu, "multiplies_bfloat16", lambda: True)
    assert set_up(CPU, "compiled", "bf16", {}).precision == "bf16"
