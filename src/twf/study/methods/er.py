"""ER, Experience Replay (Ratcliff, 1990; Robins, 1995)."""

from __future__ import annotations

from twf.study.types import MethodInfo

METHOD = MethodInfo(title="ER", order=50, rehearsal=True, without_buffer=True)
