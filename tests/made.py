"""Jobs by the plans that parameters stand for, as `twf` does them once the plans are written."""

from typing import Any

import torch

from twf.jobs import pretraining
from twf.jobs import run as jobs
from twf.study import Run, products
from twf.study.params import Params
from twf.study.products import Products


def plan_of(params: Params, run: Run) -> products.Values:
    """The plan of a run, whatever record it has."""
    return Products(params).run_plan(run, {})


def execute(params: Params, run: Run, device: torch.device, **options: Any) -> None:
    jobs.execute(run, plan_of(params, run), params.tracking, device, **options)


def pretrain(params: Params, name: str, device: torch.device, *options: Any) -> None:
    pretraining.pretrain(name, Products(params).network(name).plan, device, *options)
