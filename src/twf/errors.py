"""The one exception that means: the user can mend this."""


class UserError(Exception):
    """A mistake or a missing input that the user can mend.

    Its message names the file, key or run, and the remedy. The command line prints it without a
    stack trace and exits with status 2; the Snakefile turns it into a `WorkflowError`.
    """
