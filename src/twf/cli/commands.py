"""All commands, as one application."""

from __future__ import annotations

import sys

from twf.cli import data, project, results, training  # noqa: F401 - each adds its commands
from twf.cli.base import app
from twf.errors import UserError


def run() -> None:
    """Run a command. A user's mistake prints its message alone and exits with 2."""
    try:
        app(prog_name="twf")  # however it was started
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
