"""How long what remains of a study takes, by what recorded runs took. No torch here."""

from collections.abc import Iterable, Iterator, Mapping

from twf import files
from twf.study import Run

CL = "twf without propagation"
WEIGHTS = ("lambda_fp", "lambda_fp_replay", "lambda_diversity")  # of propagation
KEY = ["benchmark", "method", "width"]  # runs that are alike in these are taken to cost the same


def kind(method: str, hyperparameters: Mapping[str, object]) -> str:
    """A method; TwF without its three weights of propagation is another in its cost."""
    weights = [hyperparameters.get(name) for name in WEIGHTS]
    return CL if method == "twf" and not any(weights) else method


def lines(runs: Iterable[Run]) -> Iterator[str]:
    """The hours of runs, as far as `results/costs.csv` knows their kind, and methods it lacks."""
    import pandas as pd

    kinds = [
        (run.benchmark, kind(run.method, vars(run.hyperparameters)), run.network.width, run.epochs)
        for run in runs
    ]
    planned = pd.DataFrame(kinds, columns=[*KEY, "epochs"])
    known = planned.merge(pd.read_csv(files.COSTS), how="left", on=KEY)
    known["hours"] = known["epochs"] * known["seconds"] / 3600
    yield f"{len(kinds)} runs remain; hours of such runs, on a GPU several at once; no pretraining:"
    for device, hours in known.groupby("device")["hours"]:
        yield f"  {hours.sum():8.1f} hours for {len(hours)} of them on {device}"
    unknown = known[known["device"].isna()].groupby(["benchmark", "width"])["method"]
    for (benchmark, width), methods in unknown:
        names = ", ".join(sorted(set(methods)))
        yield f"  not measured: {benchmark}, width {width}: {names}"
    yield f"by medians of recorded runs ({files.COSTS})"
