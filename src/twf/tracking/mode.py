"""Whether runs are sent to Weights & Biases, kept for it, or neither; and what decides that."""

from __future__ import annotations

import configparser
import contextlib
import netrc
import os
import re
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from twf.errors import UserError, lookup
from twf.study.params import Tracking

SWITCH = "TWF_TRACKING"  # the variable that overrides `tracking.mode` of params.yaml

Mode = Literal["online", "offline", "off"]
MODES: dict[str, Mode] = {"online": "online", "offline": "offline", "off": "off"}
OF_WANDB: dict[str, Mode] = {  # W&B's modes, old names among them
    **dict.fromkeys(("online", "run", "shared"), "online"),
    **dict.fromkeys(("offline", "dryrun"), "offline"),
    "disabled": "off",
}
KEY = re.compile(r"([^-]*-)?[\w-]{40,}|[\w-]+\.[\w-]+\.[\w-]+")  # what W&B takes for a key


def decided(settings: Tracking) -> tuple[Mode, str]:
    """The mode of tracking, and what decides it.

    Online where there is a usable key; offline where the user asks for that, or has W&B configured
    without a usable key; else off. What the user asks for is said by `TWF_TRACKING`, else by W&B's
    own variables and settings files, else by `tracking.mode` of params.yaml.

    Raises `UserError` for a mode that does not exist.
    """
    asked, asker = _asked(settings)
    if asked in ("off", "offline"):
        return asked, asker
    if key := usable_key():
        return "online", asker or key
    if configured := asker or _configured():
        return "offline", f"{configured}, without a usable key"
    return "off", "no key, and nothing that asks for it"


def variable(name: str) -> str:
    """An environment variable; an empty one is as one that is not set."""
    return os.environ.get(name, "").strip()


def folder() -> Path:
    """`wandb/`, which has a folder for each offline run."""
    return Path(variable("WANDB_DIR")).expanduser() / "wandb"


def usable_key() -> str:
    """Where a key for W&B's server is, of a form that W&B takes; empty if there is none."""
    if key := variable("WANDB_API_KEY"):
        return "WANDB_API_KEY" if KEY.fullmatch(key) else ""
    server = variable("WANDB_BASE_URL") or _setting("base_url")[0] or "https://api.wandb.ai"
    with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
        entry = netrc.netrc(_netrc()).authenticators(urlsplit(server).netloc)
        if entry and KEY.fullmatch(entry[2] or ""):
            return str(_netrc())
    return ""


def _asked(settings: Tracking) -> tuple[Mode | None, str]:
    """The mode that a user asks for, and where; None where that is left to the rule."""
    switch = variable(SWITCH)
    if switch in MODES:
        return MODES[switch], SWITCH
    if switch not in ("", "auto"):
        allowed = ", ".join(["auto", *MODES])
        raise UserError(f"{SWITCH} is {switch!r}; allowed, without quotes: {allowed}")
    if variable("WANDB_DISABLED").lower() in ("1", "on", "true", "yes"):
        return "off", "WANDB_DISABLED"
    for name, where in ((variable("WANDB_MODE"), "WANDB_MODE"), _setting("mode")):
        if name:
            return lookup("mode of Weights & Biases", OF_WANDB, name, where), where
    mode = None if switch else MODES.get(settings.mode)
    return mode, "tracking.mode of params.yaml" if mode else ""


def _setting(name: str) -> tuple[str, str]:
    """A value of W&B's settings files, the project's first, and which file; else empty."""
    for file in _settings_files():
        settings = configparser.ConfigParser()
        with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
            settings.read(file, encoding="utf-8")
            if value := settings.get("default", name, fallback=""):
                return value, str(file)
    return "", ""


def _settings_files() -> list[Path]:
    own = Path(variable("WANDB_CONFIG_DIR") or "~/.config/wandb").expanduser()
    return [folder() / "settings", own / "settings"]


def _netrc() -> Path:
    return Path(variable("NETRC") or "~/.netrc").expanduser()


def _configured() -> str:
    """What shows that the user has W&B configured on this machine; empty if nothing does."""
    for name in sorted(os.environ):  # W&B sets the service's itself, in processes that use it
        if name.startswith("WANDB_") and name != "WANDB_SERVICE" and variable(name):
            return name
    with contextlib.suppress(OSError):
        if b"wandb" in _netrc().read_bytes():
            return str(_netrc())
    return next((str(file) for file in _settings_files() if file.exists()), "")
