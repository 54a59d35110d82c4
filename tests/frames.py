"""Frames as tests compare them: rows of plain values."""

from typing import Any

import numpy as np
import pandas as pd


def plain(row: dict[Any, Any]) -> dict[str, Any]:
    """A row with None for what is null, for no text and for no buffer."""
    nothing = {n for n, v in row.items() if np.ndim(v) == 0 and (pd.isna(v) or v == "")}
    nothing |= {name for name in ("buffer",) if row.get(name) == 0}
    return {str(name): None if name in nothing else value for name, value in row.items()}


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame, each `plain`."""
    return [plain(row) for row in frame.to_dict("records")]
