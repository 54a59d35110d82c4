"""One rule says whether runs are sent, kept or neither: by a key, and by what the user asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from twf.errors import UserError
from twf.study.params import Tracking
from twf.tracking import mode
from twf.tracking.mode import SWITCH

KEY = "0123456789" * 4


@pytest.fixture(autouse=True)
def _nothing(no_key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")


def of(params: str = "auto") -> str:
    return mode.decided(Tracking(mode=params))[0]


def test_without_a_key_and_unasked_nothing_is_written() -> None:
    assert of() == "off"
    assert [of(asked) for asked in ("off", "offline", "online")] == ["off", "offline", "offline"]


def test_with_a_usable_key_runs_are_sent_unless_the_user_asks_otherwise(monkeypatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    assert [of(asked) for asked in ("auto", "off", "offline")] == ["online", "off", "offline"]
    for unusable in ("too-short", f'"{KEY}"'):
        monkeypatch.setenv("WANDB_API_KEY", unusable)
        assert of() == of("online") == "offline"
    monkeypatch.setenv("WANDB_API_KEY", "")
    assert of() == "off"


@pytest.mark.parametrize("name", [".netrc", "elsewhere"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"machine api.wandb.ai login user password {KEY}", "online"),
        ("machine api.wandb.ai login user password x", "offline"),
        (f"machine wandb.example.org login user password {KEY}", "offline"),
        (f"# wandb\nmachine example.org login me password {KEY}", "offline"),
        ("wandb is not of this form", "offline"),
        (f"machine example.org login me password {KEY}", "off"),
    ],
)
def test_a_key_in_netrc_is_one_for_the_server(no_key, monkeypatch, name, content, expected) -> None:
    (no_key / name).write_text(f"{content}\n")
    if name != ".netrc":
        monkeypatch.setenv("NETRC", f"~/{name}")
    assert of() == expected


def test_the_server_may_be_ones_own(no_key, monkeypatch) -> None:
    (no_key / ".netrc").write_text(f"machine wandb.example.org:8080 login u password {KEY}\n")
    monkeypatch.setenv("WANDB_BASE_URL", "http://wandb.example.org:8080")
    assert of() == "online"
    monkeypatch.delenv("WANDB_BASE_URL")
    (no_key / ".config/wandb").mkdir(parents=True)
    settings = no_key / ".config/wandb/settings"
    settings.write_text("[default]\nbase_url = http://wandb.example.org:8080\n")
    assert of() == "online"


@pytest.mark.parametrize(
    ("told", "expected"),
    [("disabled", "off"), ("offline", "offline"), ("dryrun", "offline"), ("online", "online")],
)
def test_who_asks_goes_in_order_switch_wandb_params(monkeypatch, told, expected) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", told)
    assert {of(params) for params in ("auto", "online", "offline", "off")} == {expected}
    assert mode.decided(Tracking())[1] == "WANDB_MODE"
    for switch in ("online", "offline", "off"):
        monkeypatch.setenv(SWITCH, switch)
        assert mode.decided(Tracking()) == (switch, SWITCH)
    monkeypatch.setenv(SWITCH, "auto")
    assert of("off") == expected
    monkeypatch.setenv("WANDB_MODE", "")
    assert of("off") == "online"
    monkeypatch.setenv(SWITCH, "")
    assert of("off") == "off"


@pytest.mark.parametrize(("told", "expected"), [("true", "off"), ("1", "off"), ("false", "online")])
def test_transformers_way_to_turn_wandb_off_goes_over_its_mode(monkeypatch, told, expected) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_DISABLED", told)
    assert of() == expected


@pytest.mark.parametrize("where", ["wandb", "~/.config/wandb", "~/own"])
def test_a_settings_file_of_wandb_goes_over_params(monkeypatch, where) -> None:
    """As `wandb offline` and `wandb disabled` write it."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    if where == "~/own":
        monkeypatch.setenv("WANDB_CONFIG_DIR", where)
    folder = Path(where).expanduser()
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\nmode = disabled\n", encoding="utf-8")
    assert of("online") == "off"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert of("off") == "offline"


def test_any_sign_of_wandb_without_a_key_keeps_runs_offline(monkeypatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    assert mode.decided(Tracking()) == ("offline", "WANDB_PROJECT, without a usable key")


@pytest.mark.parametrize(("name", "value"), [(SWITCH, '"offline"'), ("WANDB_MODE", "of")])
def test_a_mode_that_does_not_exist_is_refused(monkeypatch, name, value) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name}"):
        of()


def test_the_folder_may_lie_at_home(no_key, monkeypatch) -> None:
    assert mode.folder() == Path("wandb")
    monkeypatch.setenv("WANDB_DIR", "~/runs")
    assert mode.folder() == Path(os.environ["HOME"]) / "runs/wandb"
