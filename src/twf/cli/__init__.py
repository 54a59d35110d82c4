"""The `twf` command: one command per node of the pipeline, and a few to look around.

Heavy imports stay inside the commands, so that help and planning come at once.
"""

from __future__ import annotations

import sys

from twf.cli.base import app
from twf.errors import UserError

# isort: off
from twf.cli import data, training, results, project  # noqa: F401 - each adds its commands

# isort: on

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line. A user's mistake prints its message alone and exits with 2."""
    try:
        app()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
