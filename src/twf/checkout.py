"""Whose code runs: that of the folder that is worked in or another checkout's; of which commit."""

import os
import subprocess
from pathlib import Path

import twf
from twf.errors import UserError

# what can change a number, in a checkout: code, parameters, and the packages it runs with
DECIDE = ("src", "params.yaml", "pyproject.toml", "constraints.txt")
ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
FATAL = 128  # git's exit status where it does nothing at all
COMMIT = "TWF_COMMIT"  # names the commit of a copy that went without its git


def refuse_other_code(*folders: Path) -> None:
    """Raise `UserError` where the code of this process is not that of the folder it works in.

    Records would be made by code that they do not name.
    """
    used = Path(twf.__file__).parent
    for folder in (Path.cwd(), *folders):
        own = folder / "src/twf"
        if (own / "__init__.py").exists() and not own.samefile(used):
            remedy = "`deactivate`, and there `rm -rf .venv; make setup; . .venv/bin/activate`"
            raise UserError(
                f"{folder} has code of its own, and this is {used}: unset PYTHONPATH, {remedy}"
            )


def commit() -> str | None:
    """The commit of this code, with `+` where what decides was changed; else `TWF_COMMIT`'s.

    Raises `UserError` where there is a checkout that git refuses to read, and no `TWF_COMMIT`.
    """
    folder = Path(twf.__file__).parents[2]
    # a hook's or another repository's GIT_DIR is not about this folder
    own = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}

    def git(*words: str) -> str:
        # without a lock that would have a user's own `git commit` fail
        command = ["git", "--no-optional-locks", "-C", str(folder), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
        return done.stdout.strip()

    try:
        # a wheel may lie in a folder that the git of another project ignores
        git("ls-files", "--error-unmatch", "src/twf/__init__.py")
        changed = git("status", "--porcelain", "--", *DECIDE)
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except FileNotFoundError:  # no git here
        return os.environ.get(COMMIT)
    except subprocess.CalledProcessError as error:
        if error.returncode == FATAL and (folder / ".git").exists() and COMMIT not in os.environ:
            remedy = f"mend that, or name the commit: export {COMMIT}=..."
            raise UserError(
                f"git does not read {folder}: {error.stderr.strip()}; {remedy}"
            ) from None
        return os.environ.get(COMMIT)
