"""`python -m benchmarks`: measure, print tables, write JSON."""

import json
from datetime import UTC, datetime
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
import typer

from benchmarks import command, steps
from benchmarks.shapes import planned
from benchmarks.steps import Row
from twf import files
from twf.files import write_text
from twf.gpus.devices import device_for
from twf.jobs.provenance import code_origin, device_and_versions
from twf.study import reading

RESULTS = Path(__file__).parent / "results"


class Measurement(StrEnum):
    """What there is to measure."""

    STEPS = "steps"
    SHARING = "sharing"


class Way(StrEnum):
    """How steps are executed: see docs/speed.md."""

    PLAIN = "plain"
    CAPTURED = "captured"


def main(
    measurements: Annotated[
        list[Measurement] | None, typer.Argument(help="What to measure; all where none.")
    ] = None,
    benchmark: Annotated[
        list[str] | None, typer.Option(help="Of params.yaml; split-digits where none.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="For steps; twf where none.")] = None,
    execution: Annotated[list[Way] | None, typer.Option(help="Of steps; plain if none.")] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="fp32, tf32 or bf16; tf32 where none.")
    ] = None,
    jobs: Annotated[
        list[int] | None, typer.Option(help="For sharing: how many at once; 1 and 2 where none.")
    ] = None,
    threads: Annotated[list[int] | None, typer.Option(help="CPU threads; 1 where none.")] = None,
    reference: Annotated[
        Path | None, typer.Option(help="A checkout of the published code, to time beside ours.")
    ] = None,
    calls: Annotated[int, typer.Option(min=1, help="Timed calls in a repeat.")] = 5,
    repeats: Annotated[int, typer.Option(min=1, help="Interleaved with each other's.")] = 5,
    name: Annotated[str, typer.Option(help="Of benchmarks/results/NAME.json.")] = "latest",
) -> None:
    """Time training steps on random images, in the shapes of params.yaml's benchmarks.

    Times are medians over repeats. Ratios mean more than times: what is compared is called in turn.
    `python -m benchmarks steps --benchmark split-cifar10 --reference CHECKOUT` compares TwF's step.
    """
    wanted = measurements or list(Measurement)
    params = reading.load(files.PARAMS)
    ways = [way.value for way in execution or [Way.PLAIN]]
    rows: list[Row] = []
    for count in threads or [1]:
        on = device_for(count)
        choices = product(benchmark or ["split-digits"], method or ["twf"], precision or ["tf32"])
        for where, what, rounding in choices:
            run = planned(params, where, what)
            measured: list[Row] = []
            if Measurement.STEPS in wanted:
                measured += steps.measure(
                    params, run, ways, rounding, reference, on, calls, repeats
                )
            if Measurement.SHARING in wanted:
                for way in ways:
                    measured += steps.measure_sharing(
                        params, run, way, rounding, jobs or [1, 2], on
                    )
            rows += [row | {"threads": count} for row in measured]
            path = write(name, rows, on)  # each time: the next may fail or be stopped
    show(rows)
    print(f"{path}: {len(rows)} rows")


def show(rows: list[Row]) -> None:
    """Print a table for each measurement."""
    for measurement, own in pd.DataFrame(rows).groupby("measurement", sort=False):
        table = own.drop(columns="measurement").dropna(axis="columns", how="all")
        print(f"\n{measurement}\n\n{table.to_string(index=False, float_format='{:,.2f}'.format)}")


def write(name: str, rows: list[Row], device: torch.device) -> Path:
    """Write rows, and what they were measured on, to `benchmarks/results/NAME.json`."""
    path = RESULTS / f"{name}.json"
    about = device_and_versions(device) | {
        "commit": code_origin()["commit"],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(path, json.dumps(about | {"rows": rows}, indent=1) + "\n")
    return path


if __name__ == "__main__":
    command(main)
