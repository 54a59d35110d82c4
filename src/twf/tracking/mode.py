"""Whether runs are sent to Weights & Biases, kept for it, or neither; and what decides that."""

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
        SWITCH: _variable(SWITCH),
        "WANDB_DISABLED": "off" if _variable("WANDB_DISABLED").lower() in ("1", "true") else "",
        "WANDB_MODE": _variable("WANDB_MODE"),
        SETTINGS: of_wandb.get("mode", ""),
        "tracking.mode of params.yaml": settings.mode,
    }
    modes = {where: lookup("mode", MODES, word, where) for where, word in asked_in.items() if word}
    asked, asker = next(((mode, where) for where, mode in modes.items() if mode), (None, ""))
    if asked in ("off", "offline"):
        return asked, asker
    own_netrc = _path("NETRC", "~/.netrc")
    server = _variable("WANDB_BASE_URL") or of_wandb.get("base_url", SERVER)
    if (key := _variable("WANDB_API_KEY") or _key(own_netrc, server)) and len(key) >= KEY_LENGTH:
        return "online", asker or (
            "WANDB_API_KEY" if _variable("WANDB_API_KEY") else str(own_netrc)
        )
    signs = [name for name in sorted(os.environ) if name.startswith("WANDB_") and _variable(name)]
    with contextlib.suppress(OSError):
        signs += [str(own_netrc)] if b"wandb" in own_netrc.read_bytes() else []
    if configured := next(filter(None, [asker, *signs, SETTINGS if of_wandb else ""]), ""):
        return "offline", f"{configured}, without a usable key"
    return "off", "no key, and nothing that asks for it"


def folder() -> Path:
    """`wandb/`, which has a folder for each offline run."""
    return _path("WANDB_DIR", ".") / "wandb"


def _variable(name: str) -> str:
    """An environment variable; an empty one is as one that is not set."""
    return os.environ.get(name, "").strip()


def _path(name: str, default: str) -> Path:
    return Path(_variable(name) or default).expanduser()


def _key(path: Path, server: str) -> str:
    """The key that a `.netrc` has for a server; empty without one."""
    with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
        entry = netrc.netrc(path).authenticators(urlsplit(server).netloc)
        return (entry[2] or "") if entry else ""
    return ""


def _settings() -> dict[str, str]:
    """W&B's settings files, the project's before the user's."""
    parser = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        paths = _path("WANDB_CONFIG_DIR", "~/.config/wandb"), folder()
        parser.read([path / "settings" for path in paths], encoding="utf-8")
    return dict(parser["default"]) if parser.has_section("default") else {}
