"""What `twf doctor` finds wrong with a set-up, and the remedies it names."""

from importlib import metadata

from support import Twf

from twf.gpus import devices
from twf.study import reading
from twf.upkeep import doctor


def checked(params: object, name: str) -> list[tuple[str, str]]:
    """The lines of one check: state and message."""
    return [(state, message) for check, state, message in doctor.examine(params) if check == name]


def test_each_check_is_a_line_and_something_wrong_is_told_by_the_exit(
    tiny_inputs, twf: Twf, monkeypatch
) -> None:
    done = twf("doctor")
    assert done.code == 0
    for text in ("code", f"torch {metadata.version('torch')}", "tracking", "3 data sets"):
        assert text in done.out
    monkeypatch.setenv("TWF_TRACKING", "offline")
    assert checked(tiny_inputs, "tracking") == [("ok", "offline: TWF_TRACKING")]
    monkeypatch.setenv("TWF_TRACKING", "sometimes")
    done = twf("doctor")
    assert done.code == 1 and "wrong   tracking" in done.out


def test_gpus_are_those_that_jobs_use_and_pytorch_must_be_built_for_them(
    tiny_inputs, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(doctor, "DRIVER", tmp_path)
    for built, usable, state, text in (
        ("2.13.0", ["0", "1"], "ok", "0, 1"),
        ("2.13.0", [], "ok", "CPU"),
        ("2.13.0+cpu", [], "wrong", "UV_TORCH_BACKEND"),
    ):
        monkeypatch.setattr(devices, "gpus", lambda usable=usable: usable)
        monkeypatch.setattr(metadata, "version", lambda _, built=built: built)
        ((seen, message),) = checked(tiny_inputs, "gpus")
        assert seen == state and text in message
    monkeypatch.setattr(doctor, "DRIVER", tmp_path / "none")
    assert checked(tiny_inputs, "gpus")[0][0] == "ok"


def test_data_and_networks_that_are_not_as_asked_are_told(tiny_inputs, tiny_values) -> None:
    assert [state for state, _ in checked(tiny_inputs, "inputs")] == ["ok"]
    tiny_values["sources"]["origin"]["pretraining"]["epochs"] = 3
    _, (state, message) = checked(reading.check(tiny_values), "inputs")
    assert (
        state == "warning" and "epochs: 1 -> 3: snakemake --cores all checkpoints/origin" in message
    )
