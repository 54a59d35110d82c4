"""What `twf doctor` finds wrong with a set-up, and the remedies it names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from twf import files
from twf.gpus import devices
from twf.study import reading
from twf.upkeep import doctor
from twf.upkeep.doctor import Check


def only(checks: Iterator[Check], name: str) -> Check:
    """The one check of this name; it has a remedy where something is wrong."""
    (check,) = [check for check in checks if check.name == name]
    assert check.remedy or check.state == "ok"
    return check


def test_versions_are_told_and_what_is_missing(monkeypatch) -> None:
    assert f"torch {metadata.version('torch')}" in only(doctor.packages(None), "packages").message
    monkeypatch.setattr(metadata, "distributions", list)
    assert "torch missing" in only(doctor.packages(None), "packages").message


def test_gpus_are_those_that_jobs_use_and_pytorch_must_be_built_for_them(
    monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: ["0", "1"])
    assert "0, 1" in only(doctor.gpus(None), "gpus").message
    monkeypatch.setattr(devices, "gpus", list)
    monkeypatch.setattr(doctor, "DRIVER", tmp_path)
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0")
    assert only(doctor.gpus(None), "gpus").state == "ok"
    monkeypatch.setattr(metadata, "version", lambda _: "2.13.0+cpu")
    assert "UV_TORCH_BACKEND" in only(doctor.gpus(None), "gpus").remedy
    monkeypatch.setattr(doctor, "DRIVER", tmp_path / "none")
    assert only(doctor.gpus(None), "gpus").state == "ok"


def test_tracking_says_who_decided_and_a_wrong_mode_is_wrong(tiny_inputs, monkeypatch) -> None:
    monkeypatch.setenv("TWF_TRACKING", "offline")
    assert only(doctor.tracking(tiny_inputs), "tracking").message == "offline, by TWF_TRACKING"
    monkeypatch.setenv("TWF_TRACKING", "sometimes")
    assert {c.state for c in doctor.examine(tiny_inputs) if c.name == "tracking"} == {"wrong"}


def test_each_check_is_a_line_and_something_wrong_is_told_by_the_result(capsys) -> None:
    well = [Check("a", "ok", "fine"), Check("b", "warning", "[x]", "do this")]
    assert doctor.show(well) and not doctor.show([Check("c", "wrong", "broken", "do that")])
    assert capsys.readouterr().out.splitlines() == [
        "ok      a          fine",
        "warning b          [x]. To mend it: do this",
        "wrong   c          broken. To mend it: do that",
    ]


def test_data_and_networks_that_are_not_as_asked_are_told(tiny_inputs, tiny_values) -> None:
    assert only(doctor.inputs(tiny_inputs), "inputs").state == "ok"
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 3
    check = only(doctor.inputs(reading.check(tiny_values)), "inputs")
    assert check.state == "warning" and "epochs: 1 -> 3" in check.message
    assert "twf pretrain train origin" in check.remedy
    tiny_values["datasets"]["origin"]["file"] = "other.npz"
    network, data = sorted(
        doctor.inputs(reading.check(tiny_values)), key=lambda check: check.message
    )
    assert str(files.checkpoint_file("origin")) in network.message
    assert str(files.data_file("origin")) in data.message and "prepare origin" in data.remedy
