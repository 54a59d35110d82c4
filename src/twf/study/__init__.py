"""The whole study as data: `params.yaml` as types, and the runs and tables that it stands for."""

from twf.study.expansion import expand
from twf.study.plan import Cell, Plan, Run, SearchCell, Table, Trial

__all__ = ["Cell", "Plan", "Run", "SearchCell", "Table", "Trial", "expand"]
