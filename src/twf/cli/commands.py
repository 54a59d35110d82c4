"""All commands, as one application, in the order of `--help`: plan, run and report first."""

from twf.cli import training, results, data, project  # noqa: F401, I001 - each adds its commands
from twf.cli.base import app

__all__ = ["app"]
