"""The disk space that a study needs, and the error where it is not there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from twf import files
from twf.errors import UserError
from twf.forecast import disk
from twf.forecast.disk import network_mib
from twf.learning.models.resnet import ResNet
from twf.study import expand
from twf.study.params import Network, Params

PIXELS = (44 + 16 + 33 + 12) * 16 * 16 * 3 / 2**20  # of both miniature data sets, in MiB


def test_a_study_without_any_file_needs_all_its_parts(tiny_project, tiny_values) -> None:
    params = Params.model_validate(tiny_values)
    plan = expand(params, "tiny")
    network = network_mib(params.sources["origin"].network)
    assert disk.needed(params, plan, jobs=3) == {
        "archives": 0,
        "data": pytest.approx(PIXELS),
        "checkpoints": network,
        "states": 3 * 2 * network,
    }


def test_what_is_there_is_not_needed_again(tiny_inputs) -> None:
    plan = expand(tiny_inputs, "tiny")
    found = disk.needed(tiny_inputs, plan, jobs=1)
    assert (found["data"], found["checkpoints"]) == (0, 0)
    for run in plan.runs:
        files.record_file("tiny", run).parent.mkdir(parents=True, exist_ok=True)
        files.record_file("tiny", run).touch()
    assert not any(disk.needed(tiny_inputs, plan, jobs=1).values())


@pytest.mark.parametrize("architecture", ["resnet18", "resnet50"])
@pytest.mark.parametrize("width", [8, 64])
def test_a_network_takes_no_less_than_is_said(architecture, width) -> None:
    with torch.device("meta"):
        network = ResNet(Network(architecture=architecture, width=width), classes=1)
    held = sum(t.numel() * t.element_size() for t in network.state_dict().values()) / 2**20
    said = network_mib(Network(architecture=architecture, width=width))
    assert 0.95 * held < said <= held


def test_too_small_a_disk_is_a_users_mistake(tiny_project, tiny_values, monkeypatch) -> None:
    params = Params.model_validate(tiny_values)
    plan, usage = expand(params, "tiny"), shutil.disk_usage(".")
    together = sum(disk.needed(params, plan, jobs=1).values())

    def check(free_mib: float) -> None:
        left = usage._replace(free=int(free_mib * 2**20))
        monkeypatch.setattr(shutil, "disk_usage", lambda _: left)
        disk.check(params, plan)

    with pytest.raises(UserError, match=r"study tiny.*twf clean"):
        check(together * 0.9)
    check(together * 1.1)


def test_folders_on_other_disks_are_held_against_these(tiny_project, tiny_values, small_disk):
    """1 MiB is too small for a state's two networks of width 16, and the rest lies elsewhere."""
    tiny_values["sources"]["origin"]["network"]["width"] = 16
    params = Params.model_validate(tiny_values)
    plan = expand(params, "tiny")
    disk.check(params, plan)
    Path("states").symlink_to(small_disk)
    with pytest.raises(UserError, match=str(small_disk)) as caught:
        disk.check(params, plan)
    assert "states 5 MiB" in str(caught.value) and "data" not in str(caught.value)


def test_a_full_disk_is_named_once_a_job_has_failed(tiny_project, small_disk, capsys) -> None:
    Path("states").symlink_to(small_disk)
    disk.say_where_full()
    assert capsys.readouterr().err == ""
    (small_disk / "filler").write_bytes(b"x" * 2**19)
    disk.say_where_full()
    (said,) = capsys.readouterr().err.splitlines()
    assert str(small_disk) in said and "twf clean" in said
