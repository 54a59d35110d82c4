"""From runs' records to tables and a report: each mean and verdict is a function of these records.

`load` gives a notebook a study's results.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from twf import checkout
from twf.errors import warn
from twf.files import PARAMS

if TYPE_CHECKING:
    from twf.results.notebook import Frames


def load(study: str, params: Path = PARAMS) -> Frames:
    """The collected runs of a study as tidy data frames, in the project's folder.

    Warns of records that are stale, as those collected before params.yaml was changed: they count
    as not finished.

    Raises `UserError` where the study is unknown, or its records have not been collected, and where
    the folder has code of its own that is not this: a notebook may have another checkout's.
    """
    checkout.refuse_other_code()
    from twf.results.frame import Results
    from twf.results.notebook import Frames  # pandas, which planning does without
    from twf.study import expand, reading

    results = Results.collected(expand(reading.load(params), study), history=True)
    if stale := int((results.runs["status"] == "stale").sum()):
        warn(
            f"{stale} of {len(results.runs)} collected records are stale, and count as not "
            f"finished: `twf plan {study}` says why"
        )
    return Frames(results)
