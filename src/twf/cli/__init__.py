"""The `twf` command: one command per node of the pipeline, and a few to look around.

Nothing heavy is imported but inside the commands, so that help and planning come at once.
"""

import io
import os
import sys

from twf import checkout
from twf.errors import UserError


def main() -> None:
    """Run the command line, but not in a folder with other code than this."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the caller closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the process's end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a sign ends nothing
            stream.reconfigure(errors="replace")
    try:
        checkout.refuse_other_code()
        from twf.cli import training, results  # noqa: F401, I001 - the order of `--help`

        try:
            training.app(prog_name="twf")  # however it was started
        finally:
            sys.stdout.flush()  # where what fails is told, and not at the process's end
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:  # a full disk, a name that is too long
        enough = isinstance(error, BrokenPipeError)  # `| head` has read enough
        if not enough:
            print(f"error: {error}", file=sys.stderr)
        # what is left in the buffer would be written, and fail, at the process's end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0 if enough else 1)
    except KeyboardInterrupt:  # while modules are imported; commands end with a word of their own
        sys.exit(130)
