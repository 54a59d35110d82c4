"""The environment's variables that jobs read, looked at before the first job."""

from __future__ import annotations

import typer
from typer.main import get_command

from twf.cli.base import app
from twf.cli.training import run
from twf.errors import UserError
from twf.study.params import Params
from twf.tracking import mode


def refuse_wrong(params: Params) -> None:
    """Raise `UserError` for a variable with a value that a job would refuse."""
    command = get_command(app).commands[run.__name__]  # type: ignore[attr-defined]
    try:
        command.make_context(run.__name__, ["STUDY", "RUN"])  # reads the options' variables
    except typer.BadParameter as error:
        raise UserError(error.format_message()) from None
    mode.decided(params.tracking)
