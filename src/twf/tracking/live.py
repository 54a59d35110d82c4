"""Following a run in Weights & Biases while it trains. A failure here never ends the run.

What is shown is a function of the run's record, whole or so far: a `Row` has the columns of
`twf.results.record.SCHEMA`, of which the later ones are missing while the run trains.
"""

import configparser
import contextlib
import netrc
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch
from urllib.parse import urlsplit

from twf.errors import lookup, note
from twf.results import record
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS, Tracking

SWITCH = "TWF_TRACKING"  # the variable that overrides `tracking.mode` of params.yaml
SERVER = "https://api.wandb.ai"
KEY_LENGTH = 40  # characters, at least
PATIENCE = 120.0  # seconds for W&B to start, and to send the last data; `wandb sync` sends the rest

Mode = Literal["online", "offline", "off"]
MODES: dict[str, Mode | None] = {"online": "online", "offline": "offline", "off": "off"}
MODES |= {"disabled": "off", "dryrun": "offline", "run": "online", "shared": "online"}  # W&B's
MODES["auto"] = None  # ours, for the rule below

Row = Mapping[str, Any]


def decided(settings: Tracking) -> tuple[Mode, str]:
    """The mode of tracking, and what decides it.

    Online where there is a usable key; offline where the user asks for that, or has W&B configured
    without a usable key; else off. What the user asks for is said by `TWF_TRACKING`, else by W&B's
    own variables and settings files, else by `tracking.mode` of params.yaml.

    Raises `UserError` for a mode that does not exist.
    """
    of_wandb = _settings()
    asked_in = {
        SWITCH: _variable(SWITCH),
        "WANDB_MODE": _variable("WANDB_MODE"),
        "W&B's settings": of_wandb.get("mode", ""),
        "tracking.mode of params.yaml": settings.mode,
    }
    modes = {where: lookup("mode", MODES, word, where) for where, word in asked_in.items() if word}
    asker, asked = next(((where, mode) for where, mode in modes.items() if mode), ("", None))
    if asked in ("off", "offline"):
        return asked, asker
    path, key, mentioned = _path("NETRC", "~/.netrc"), _variable("WANDB_API_KEY"), False
    with contextlib.suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
        mentioned = b"wandb" in path.read_bytes()
        server = _variable("WANDB_BASE_URL") or of_wandb.get("base_url", SERVER)
        entry = netrc.netrc(path).authenticators(urlsplit(server).netloc)
        key = key or ((entry and entry[2]) or "")
    if len(key) >= KEY_LENGTH:
        return "online", asker or "a usable key"
    variables = any(name.startswith("WANDB_") and _variable(name) for name in os.environ)
    if asker or variables or mentioned or of_wandb:
        return "offline", f"{asker or 'a configuration of W&B'}, without a usable key"
    return "off", "no key, and nothing that asks for it"


def _variable(name: str) -> str:
    """An environment variable; an empty one is as one that is not set."""
    return os.environ.get(name, "").strip()


def _path(name: str, default: str) -> Path:
    return Path(_variable(name) or default).expanduser()


def _folder() -> Path:
    """`wandb/`, which has a folder for each offline run."""
    return _path("WANDB_DIR", ".") / "wandb"


def _settings() -> dict[str, str]:
    """What `wandb offline`, `disabled` and `login` wrote: for the project, else for the user."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.add_section("default")
    with contextlib.suppress(configparser.Error, UnicodeDecodeError):
        folders = _path("WANDB_CONFIG_DIR", "~/.config/wandb"), _folder()
        parser.read([folder / "settings" for folder in folders], encoding="utf-8")
    return dict(parser["default"])


class LiveTracker:
    """Reports a run to W&B's run until something fails; without one, to nobody.

    A run that is resumed here starts there with row 0, which replaces what was under its name.
    """

    def __init__(self, wandb_run: Any = None, columns_before: Row | None = None):
        self._run = wandb_run
        self._columns_before = columns_before or {}
        self._sent = 0  # rows

    def update(self, outcome: Row) -> None:
        """Report the outcome so far, or the record, by the record's columns."""

        def send(run: Any) -> None:
            for values in rows({**self._columns_before, **outcome})[self._sent :]:
                run.log(values, step=self._sent, commit=True)
                self._sent += 1
            if "status" in outcome:
                run.summary.update({key: outcome[key] for key in ("status", "reason", "seconds")})

        self.report(send)

    def report(self, action: Callable[[Any], object]) -> None:
        """Do something with W&B's run; whatever error that raises, ours matters more."""
        try:
            if self._run is not None:
                action(self._run)
        except Exception as error:
            self._run = None
            note(f"warning: tracking stopped: {error!r}")


@contextlib.contextmanager
def start_tracking(settings: Tracking, columns_before: Row) -> Iterator[LiveTracker]:
    """A tracker for one run, in the mode that is `decided`.

    `columns_before` are the columns of the run's record that are set before it trains. Raises
    `UserError` as `decided` does.
    """
    mode, why = decided(settings)
    if mode == "offline":
        note(f"tracking is offline ({why}): `wandb sync {_folder()}/offline-run-*` sends it")
    run, code = None, 1
    try:
        run = None if mode == "off" else _begin(mode, about(columns_before, settings))
    except Exception as error:  # no wandb, no network, no disk: the run goes on without it
        note(f"warning: tracking is off for this run: {error!r}")
    tracker = LiveTracker(run, columns_before)
    try:
        yield tracker
        code = 0
    finally:
        tracker.report(lambda run: run.finish(exit_code=code))


def _begin(mode: Any, described: dict[str, Any]) -> Any:
    """W&B's run for a run of ours."""
    import wandb

    _folder().mkdir(parents=True, exist_ok=True)
    # W&B's own process takes these from the environment: without the mode it sends word of itself
    # offline too; `wandb.setup` never returns where the process does not start (W&B 0.31).
    with patch.dict(os.environ, WANDB_MODE=mode, WANDB_X_SERVICE_WAIT=str(PATIENCE)):
        os.environ.pop("WANDB_SWEEP_ID", None)  # whose run's identifier would go before ours
        run = wandb.init(
            mode=mode,
            dir=_folder().absolute().parent,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,  # an address can hold a key; the record has the commit
                x_disable_stats=True,
                x_save_requirements=False,  # 0.3 s; constraints.txt of the commit says them
                finish_timeout=PATIENCE,
                finish_timeout_raises=True,
            ),
            **described,
        )
    run.define_metric("phase")
    run.define_metric("accuracy/*", step_metric="phase")
    return run


def about(row: Row, settings: Tracking) -> dict[str, Any]:
    """What `wandb.init` takes to describe a run: a project per study, a group per cell.

    The identifier is the same for the same run with the same parameters, wherever and whenever.
    """
    provenance = record.provenance(dict(row))
    columns = {name: row[name] for name in ("study", "digest", "device", "host")}
    columns["started"] = row["started"].isoformat()
    return {
        "project": f"{settings.project}-{row['study']}",
        "entity": settings.entity,
        "id": f"{row['study']}.{row['run']}.{row['digest'][:8]}",
        "name": row["run"],
        "group": row["run"].removesuffix(f".s{row['seed']}"),
        "config": provenance.pop("parameters") | columns | provenance,
    }


def rows(row: Row) -> list[dict[str, float]]:
    """The rows of the charts by step: each epoch's losses, then each phase's accuracies.

    While the run trains, they are the first ones of its record.
    """
    charted = []
    for phase, epochs in groupby(row["history"], key=lambda entry: int(entry["phase"])):
        for epoch in epochs:
            losses = {"total": epoch["loss"], **dict(epoch["terms"])}
            values = {f"loss/{name}": value for name, value in losses.items()}
            charted.append({"phase": phase, "epoch": epoch["epoch"], **values})
        values = {"phase": phase}
        for protocol in PROTOCOLS if phase < len(row["accuracy_class_il"]) else ():
            accuracies = row[f"accuracy_{protocol.replace('-', '_')}"][phase]
            at_once = METHODS[row["method"]].at_once  # it has seen all tasks after its only phase
            seen = accuracies if at_once else accuracies[: phase + 1]
            values[f"accuracy/{protocol}/seen"] = sum(seen) / len(seen)
            values |= {f"accuracy/{protocol}/task-{i}": a for i, a in enumerate(accuracies)}
        if len(values) > 1:
            charted.append(values)
    return charted
