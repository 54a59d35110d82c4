"""A plugin of pytest: each failure in full as soon as it is known; the end may not come.

`pytest -p benchmarks.gpu.failures`
"""

from __future__ import annotations

import sys

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Called for each phase of each test, in the process that has the output."""
    if report.failed:
        print(f"\nFAILED {report.nodeid}\n{report.longreprtext}", file=sys.stderr, flush=True)
