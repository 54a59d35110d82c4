"""Whether runs are sent, kept or neither: by a key, and by what the user asks."""

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
        ({}, OFFLINE, OFFLINE),
        ({}, ONLINE, OFFLINE),
        # with a usable key, runs are sent
        (KEYED, AUTO, ONLINE),
        (KEYED, OFF, OFF),
        (KEYED, OFFLINE, OFFLINE),
        ({"WANDB_API_KEY": "too-short"}, AUTO, OFFLINE),
        # any other sign of W&B keeps them; an empty variable is none
        ({"WANDB_PROJECT": "mine"}, AUTO, OFFLINE),
        ({"WANDB_API_KEY": "", "WANDB_PROJECT": "", SWITCH: ""}, AUTO, OFF),
        # who asks goes in order: switch, W&B, params.yaml
        (KEYED | {"WANDB_MODE": "disabled"}, ONLINE, OFF),
        (KEYED | {"WANDB_DISABLED": "true"}, ONLINE, OFF),
        (KEYED | {"WANDB_MODE": "offline"}, OFF, OFFLINE),
        (KEYED | {"WANDB_MODE": "online"}, OFF, ONLINE),
        *((KEYED | {"WANDB_MODE": "online", SWITCH: m}, AUTO, m) for m in (OFFLINE, OFF)),
        (KEYED | {"WANDB_MODE": "offline", SWITCH: ONLINE}, OFF, ONLINE),
        (KEYED | {"WANDB_MODE": "offline", SWITCH: AUTO}, OFF, OFFLINE),
    ],
)
def test_the_mode_is_by_a_key_and_what_the_user_asks(
    monkeypatch, variables, params, expected
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert decided(params) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"machine api.wandb.ai login user password {KEY}", ONLINE),
        ("machine api.wandb.ai login user password x", OFFLINE),
        (f"# wandb\nmachine example.org login me password {KEY}", OFFLINE),
        (f"machine example.org login me password {KEY}", OFF),
        ("not of this form", OFF),
    ],
)
def test_a_key_in_netrc_is_one_for_the_server(no_key, monkeypatch, content, expected) -> None:
    for name in (".netrc", "elsewhere"):
        (no_key / name).write_text(f"{content}\n")
        assert decided() == expected
        monkeypatch.setenv("NETRC", "~/elsewhere")
        (no_key / name).unlink()


def settings(folder: str, line: str) -> None:
    """A settings file of wandb, as `wandb offline` and `wandb login` write it."""
    path = Path(folder).expanduser() / "settings"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[default]\n{line}\n", encoding="utf-8")


def test_the_server_may_be_ones_own(no_key, monkeypatch) -> None:
    (no_key / ".netrc").write_text(f"machine wandb.example.org:8080 login u password {KEY}\n")
    settings("~/.config/wandb", "base_url = http://wandb.example.org:8080")
    assert decided() == ONLINE
    monkeypatch.setenv("WANDB_BASE_URL", "http://other.example.org")
    assert decided() == OFFLINE


@pytest.mark.parametrize("folder", ["wandb", "~/.config/wandb", "~/own"])
def test_a_settings_file_of_wandb_goes_over_params(monkeypatch, folder) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_CONFIG_DIR", "~/own" if folder == "~/own" else "")
    settings(folder, "mode = disabled")
    assert decided("online") == OFF
    settings("wandb", "mode = offline")
    assert decided("online") == OFFLINE, "the project's goes over the user's"
    monkeypatch.setenv("WANDB_MODE", "online")
    assert decided("off") == ONLINE


@pytest.mark.parametrize(("name", "value"), [(SWITCH, '"offline"'), ("WANDB_MODE", "of")])
def test_a_mode_that_does_not_exist_is_refused_by_the_variables_name(
    monkeypatch, name, value
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name}.*offline"):
        decided()
