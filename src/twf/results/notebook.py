"""A study's runs, accuracies and losses as tidy data frames, for a notebook."""

from __future__ import annotations

from functools import cached_property
from itertools import product

import pandas as pd

from twf.errors import UserError, lookup
from twf.results import contrasts, show
from twf.results.frame import Results, column, served
from twf.study.methods import METHODS
from twf.study.params import PROTOCOLS

_PLACE = ["run", "benchmark", "source", "method", "variant", "buffer", "seed"]
_GAINED = ["benchmark", "source", "buffer", "protocol"]


class Frames:
    """The runs of a study, with the columns of `_PLACE` in each frame, never null.

    `variant` is `frame.AS_SET`, or an experiment's name for what it changes, or `trial-...` in a
    search; `buffer` is 0 without one. Runs alike in benchmark, source, method, variant and buffer
    differ in their seed, or in the protocol that their hyperparameters are for: a run's accuracies
    are those under the protocols of its cells in the tables. They are in per cent, of finished
    runs; those of a search's trials are on held-out training images.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._served = served(results.plan)
        variants = self._served.drop_duplicates("run").set_index("run")["variant"]
        self._whole = results.runs.join(variants).reset_index()

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row for each planned run.

        `faa_*` and `ff_*` are final average accuracy and forgetting (as published; null for Joint)
        by protocol; null where the run has not finished. `hyperparameters.*` are null where the
        method has none of this name.
        """
        frame = self._whole[[*_PLACE, "status"]]
        tuned_for = self._served.set_index(["run", "protocol"]).index
        scores = self._results.scores[["faa", "ff"]].reindex(tuned_for)
        for protocol in PROTOCOLS:
            of = scores[scores.index.get_level_values("protocol") == protocol].droplevel(1)
            names = {name: column(name, protocol) for name in ("faa", "ff")}
            frame = frame.join(of.rename(columns=names), on="run")
        planned = self._results.plan.runs
        values = [planned[run].hyperparameters.model_dump() for run in frame["run"]]
        hyperparameters = pd.DataFrame(values, frame.index).add_prefix("hyperparameters.")
        cost = self._whole[["seconds", "peak_memory_mib", "device"]]
        return frame.join(cost).join(hyperparameters)

    def gains(self, method: str, over: str) -> pd.DataFrame:
        """A method's final average accuracy minus another's, in points.

        Methods as `er`, or `twf cl` for a variant. A row for each benchmark, source, buffer and
        protocol, where both are, also in different tables; a method without a buffer stands beside
        each buffer of the other. `n` seeds that both have finished, `gain_mean`, its
        standard error `gain_error` with `gain_freedom` degrees of freedom, and the ends of the 95 %
        interval, `gain_low` and `gain_high`, by `contrasts`.
        Raises `UserError` where the study has no such method, or both are the same.
        """
        return self._differences(method, over, "faa")

    def forgetting(self, method: str, over: str) -> pd.DataFrame:
        """A method's final forgetting (F8: published) minus another's, as `gains`; below 0: less.

        The columns are `forgetting_mean` and so on; `n` is 0 where a method has none, as Joint.
        """
        found = self._differences(method, over, "ff")
        return found.rename(columns=lambda name: name.replace("gain_", "forgetting_"))

    def _differences(self, method: str, over: str, score: str) -> pd.DataFrame:
        values = contrasts.of_cells(self._results, score)
        names = dict.fromkeys(f"{key.method} {key.variant}".strip() for key in values)
        for name in (method, over):
            lookup("method", names, name, f"study {self._results.plan.study}")
        if method == over:
            raise UserError(f"{method!r} over itself: name another method, or a variant")
        (ours, _, our_variant), (theirs, _, variant) = (n.partition(" ") for n in (method, over))
        across = not (METHODS[ours].rehearsal and METHODS[theirs].rehearsal)
        rows = []
        for key, other in product(values, values):
            alike = key._replace(method=theirs, variant=variant, buffer=other.buffer) == other
            named = (key.method, key.variant) == (ours, our_variant)
            if named and alike and (across or key.buffer == other.buffer):
                place = {name: getattr(key, name) for name in _GAINED}
                place["buffer"] = key.buffer or other.buffer
                rows.append(place | contrasts.difference(values, key, other).gain)
        gained = [f"gain_{name}" for name in contrasts.Contrast._fields[1:]]
        return pd.DataFrame(rows, columns=[*_GAINED, *gained, "n"])

    @cached_property
    def accuracies(self) -> pd.DataFrame:
        """`Results.accuracies`, of each run under the protocols of its cells."""
        served = self._whole[_PLACE].merge(self._served[["run", "protocol"]], on="run")
        return served.merge(self._results.accuracies, on=["run", "protocol"])

    @cached_property
    def losses(self) -> pd.DataFrame:
        """The mean `loss` of a `term`, weighted, in an `epoch` of training on task `trained`.

        Epochs count from 1 over all tasks. The loss minimised is the sum of a run's terms.
        """

        rows = []
        for row in show.rows(self._whole[self._whole["status"] == "finished"]):
            run, place = self._results.plan.runs[row["run"]], [row[name] for name in _PLACE]
            for epoch, entry in enumerate(row["history"], start=1):
                trained = entry["phase"] + 1 + run.tasks - run.phases
                rows += [(*place, trained, epoch, term, loss) for term, loss in entry["terms"]]
        return pd.DataFrame(rows, columns=[*_PLACE, "trained", "epoch", "term", "loss"])
