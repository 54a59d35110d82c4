"""Whether runs are sent, kept or neither: by a key, and by what the user asks."""

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


def decided(params: str = "auto") -> str:
    return mode.decided(Tracking(mode=params))[0]


AUTO, ONLINE, OFFLINE, OFF = "auto", "online", "offline", "off"
KEYED = {"WANDB_API_KEY": KEY}


@pytest.mark.parametrize(
    ("variables", "params", "expected"),
    [
        # without a key, and unasked, nothing is written
        ({}, AUTO, OFF),
        ({}, OFF, OFF),
        ({}, OFFLINE, OFFLINE),
        ({}, ONLINE, OFFLINE),
        # with a usable key, runs are sent
        (KEYED, AUTO, ONLINE),
        (KEYED, OFF, OFF),
        (KEYED, OFFLINE, OFFLINE),
        *(({"WANDB_API_KEY": bad}, AUTO, OFFLINE) for bad in ("too-short", f'"{KEY}"')),
        # any other sign of W&B keeps them; an empty variable is none
        ({"WANDB_PROJECT": "mine"}, AUTO, OFFLINE),
        ({"WANDB_API_KEY": "", "WANDB_PROJECT": "", SWITCH: ""}, AUTO, OFF),
        # who asks goes in order: switch, W&B, params.yaml
        *((KEYED | {"WANDB_MODE": word}, ONLINE, OFF) for word in ("disabled",)),
        *((KEYED | {"WANDB_MODE": word}, OFF, OFFLINE) for word in ("offline", "dryrun")),
        (KEYED | {"WANDB_MODE": "online"}, OFF, ONLINE),
        *((KEYED | {"WANDB_MODE": "online", SWITCH: m}, AUTO, m) for m in (OFFLINE, OFF)),
        (KEYED | {"WANDB_MODE": "offline", SWITCH: ONLINE}, OFF, ONLINE),
        (KEYED | {"WANDB_MODE": "offline", SWITCH: AUTO}, OFF, OFFLINE),
        (KEYED | {SWITCH: AUTO}, OFF, ONLINE),
        (KEYED | {"WANDB_MODE": "online", "WANDB_DISABLED": "true"}, AUTO, OFF),
        (KEYED | {"WANDB_MODE": "online", "WANDB_DISABLED": "false"}, AUTO, ONLINE),
    ],
)
def test_the_mode_is_by_a_key_and_what_the_user_asks(
    monkeypatch, variables, params, expected
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert decided(params) == expected


@pytest.mark.parametrize("name", [".netrc", "elsewhere"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"machine api.wandb.ai login user password {KEY}", ONLINE),
        ("machine api.wandb.ai login user password x", OFFLINE),
        (f"machine wandb.example.org login user password {KEY}", OFFLINE),
        (f"# wandb\nmachine example.org login me password {KEY}", OFFLINE),
        ("wandb is not of this form", OFFLINE),
        (f"machine example.org login me password {KEY}", OFF),
    ],
)
def test_a_key_in_netrc_is_one_for_the_server(no_key, monkeypatch, name, content, expected) -> None:
    (no_key / name).write_text(f"{content}\n")
    if name != ".netrc":
        monkeypatch.setenv("NETRC", f"~/{name}")
    assert decided() == expected


@pytest.mark.parametrize("where", ["variable", "settings"])
def test_the_server_may_be_ones_own(no_key, monkeypatch, where) -> None:
    (no_key / ".netrc").write_text(f"machine wandb.example.org:8080 login u password {KEY}\n")
    server = "http://wandb.example.org:8080"
    if where == "variable":
        monkeypatch.setenv("WANDB_BASE_URL", server)
    else:
        (no_key / ".config/wandb").mkdir(parents=True)
        (no_key / ".config/wandb/settings").write_text(f"[default]\nbase_url = {server}\n")
    assert decided() == ONLINE


@pytest.mark.parametrize("where", ["wandb", "~/.config/wandb", "~/own"])
def test_a_settings_file_of_wandb_goes_over_params(monkeypatch, where) -> None:
    """As `wandb offline` and `wandb disabled` write it."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    if where == "~/own":
        monkeypatch.setenv("WANDB_CONFIG_DIR", where)
    folder = Path(where).expanduser()
    folder.mkdir(parents=True)
    (folder / "settings").write_text("[default]\nmode = disabled\n", encoding="utf-8")
    assert decided("online") == OFF
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert decided("off") == OFFLINE


@pytest.mark.parametrize(("name", "value"), [(SWITCH, '"offline"'), ("WANDB_MODE", "of")])
def test_a_mode_that_does_not_exist_is_refused_by_the_variables_name(
    monkeypatch, name, value
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name}"):
        decided()


def test_the_folder_may_lie_at_home(monkeypatch) -> None:
    assert mode.folder() == Path("wandb")
    monkeypatch.setenv("WANDB_DIR", "~/runs")
    assert mode.folder() == Path(os.environ["HOME"]) / "runs/wandb"
