"""Finetune, the lower bound: one task after another."""

from __future__ import annotations

from twf.study.types import MethodInfo

METHOD = MethodInfo(title="Finetune", order=20)
