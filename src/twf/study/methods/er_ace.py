"""ER-ACE, Asymmetric Cross-Entropy (Caccia et al., 2022)."""

from __future__ import annotations

from twf.study.types import MethodInfo

METHOD = MethodInfo(title="ER-ACE", order=90, rehearsal=True)
