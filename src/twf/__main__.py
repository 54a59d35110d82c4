"""`python -m twf`, for where the `twf` command is not on the path."""

from twf.cli import main

main()
