"""Joint, the upper bound: all tasks at once."""

from __future__ import annotations

from twf.study.types import MethodInfo

METHOD = MethodInfo(title="Joint (UB)", order=10, at_once=True)
