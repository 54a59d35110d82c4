"""Speed and memory of training, beside the authors' published code: `--help`."""

import sys
from collections.abc import Callable
from pathlib import Path

import typer

from twf import checkout
from twf.errors import UserError


def command(main: Callable[..., None]) -> None:
    """Call `main` with the words of the command line; a user's mistake ends it with status 2."""
    try:
        checkout.refuse_other_code(Path(__file__).parents[1])
        typer.run(main)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
