"""The parameters that a call of Snakemake plans with, kept for the jobs that it starts.

A study takes hours, and `params.yaml` may be edited meanwhile. Jobs that read it then would mix new
parameters with old ones, under Snakemake's note that they are the old ones: so they read a copy.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from twf.errors import UserError
from twf.files import PARAMS, atomic
from twf.study import reading
from twf.study.params import Params

VARIABLE = "TWF_PARAMS"  # the file that commands read where no --params names another


@dataclass(frozen=True)
class Snapshot:
    """A file of parameters as it was when Snakemake started."""

    path: Path
    text: str
    params: Params

    @classmethod
    def read(cls, remote: bool) -> Snapshot:
        """`params.yaml`; in a job of a cluster, the copy of the Snakemake that submitted it."""
        path = Path(os.environ.get(VARIABLE, PARAMS)) if remote else PARAMS
        text = reading.text_of(path)
        return cls(path, text, reading.parse(text, path))

    def study(self, config: dict[str, str]) -> str:
        """The study that `--config study=NAME` chooses, else the default one.

        Raises `UserError` where it does not exist, and for other keys: no job would see them.
        """
        if config.keys() - {"study"}:
            raise UserError(f"--config takes study=NAME alone; change anything else in {self.path}")
        name = config.get("study", self.params.study)
        self.params.named_study(name)
        return name

    def keep(self, folder: Path) -> None:
        """Have the commands that this process starts read a copy in `folder`."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        copy = folder / f"{digest}.yaml"  # one for all who plan with the same
        with atomic(copy) as partial:
            partial.write_text(self.text, encoding="utf-8")
        os.environ[VARIABLE] = str(copy)

    def require_unchanged(self) -> None:
        """Raise `UserError` where the file has other parameters now."""
        try:
            text = reading.text_of(self.path)
            same = text == self.text or reading.parse(text, self.path) == self.params
        except UserError:
            same = False
        if not same:
            raise UserError(
                f"{self.path} was changed meanwhile: the results are of {self.path} as it was at "
                "the start; call again for what the change asks for"
            )
