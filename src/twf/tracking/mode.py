"""Whether runs are sent to Weights & Biases, kept for it, or neither; and what decides that."""

from __future__ import annotations

import configparser
import contextlib
import netrc
import os
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from twf.errors import lookup
from twf.study.params import Tracking

SWITCH = "TWF_TRACKING"  # the variable that overrides `tracking.mode` of params.yaml
SETTINGS = "W&B's settings"  # as `wandb offline` and `wandb disabled` write them
SERVER = "https://api.wandb.ai"
KEY_LENGTH = 40  # characters, at least

Mode = Literal["online", "offline", "off"]
MODES: dict[str, Mode | None] = {"online": "online", "offline": "offline", "off": "off"}
MODES |= {"disabled": "off", "auto": None}  # W&B's word, and ours for the rule below


def decided(settings: Tracking) -> tuple[Mode, str]:
    """The mode of tracking, and what decides it.

    Online where there is a usable key; offline where the user asks for that, or has W&B configured
    without a usable key; else off. What the user asks for is said by `TWF_TRACKING`, else by W&B's
    own variable and settings files, else by `tracking.mode` of params.yaml.

    Raises `UserError` for a mode that does not exist.
    """
    of_wandb = _settings()
    asked_in = {
        SWITCH: variable(SWITCH),
        "WANDB_DISABLED": "off" if variable("WANDB_DISABLED").lower() in ("1", "true") else "",
        "WANDB_MODE": variable("WANDB_MODE"),
        SETTINGS: of_wandb.get("mode", ""),
        "tracking.mode of params.yaml": settings.mode,
    }
    modes = {where: lookup("mode", MODES, word, where) for where, word in asked_in.items() if word}
    asked, asker = next(((mode, where) for where, mode in modes.items() if mode), (None, ""))
    if asked in ("off", "offline"):
        return asked, asker
    if key := _usable_key(variable("WANDB_BASE_URL") or of_wandb.get("base_url", SERVER)):
        return "online", asker or key
    names = [name for name in sorted(os.environ) if name.startswith("WANDB_") and variable(name)]
    names += [SETTINGS] if of_wandb else []
    with contextlib.suppress(OSError):
        names += [str(_netrc())] if b"wandb" in _netrc().read_bytes() else []
    if configured := next(filter(None, [asker, *names]), ""):
        return "offline", f"{configured}, without a usable key"
    return "off", "no key, and nothing that asks for it"


def variable(name: str) -> str:
    """An environment variable; an empty one is as one that is not set."""
    return os.environ.get(name, "").strip()


def folder() -> Path:
    """`wandb/`, which has a folder for each offline run."""
    return Path(variable("WANDB_DIR")).expanduser() / "wandb"


def _usable_key(server: str) -> str:
    """Where a key for W&B's server is; empty if there is none of a key's length."""
    if key := variable("WANDB_API_KEY"):
        return "WANDB_API_KEY" if len(key) >= KEY_LENGTH else ""
    with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
        entry = netrc.netrc(_netrc()).authenticators(urlsplit(server).netloc)
        return str(_netrc()) if entry and len(entry[2] or "") >= KEY_LENGTH else ""
    return ""


def _netrc() -> Path:
    return Path(variable("NETRC") or "~/.netrc").expanduser()


def _settings() -> dict[str, str]:
    """W&B's settings files, the project's before the user's."""
    own = Path(variable("WANDB_CONFIG_DIR") or "~/.config/wandb").expanduser()
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        parser.read([own / "settings", folder() / "settings"], encoding="utf-8")
    return dict(parser["default"]) if parser.has_section("default") else {}
