"""What decides each product that takes hours, a data set, a network or a run's record: its plan.

A plan is plain values. A product carries the plan that it was made by; its time says nothing.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from twf import files
from twf.errors import UserError, few, lookup
from twf.study.code import LOOP, code_hash, method_module
from twf.study.params import Dataset, Params, Source
from twf.study.plan import Plan, Run
from twf.study.reading import plain_values

Values = dict[str, Any]

MADE_OF = "made_of"  # where a data set's header has its plan, as JSON
FILE_SHA256 = "file_sha256"  # of a user's own archive
WEIGHTS_SHA256 = "weights_sha256"  # of a user's own weights, which a source names

_dataset: TypeAdapter[Dataset] = TypeAdapter(Dataset)
_any = {"title": "", "augmentation": {"mean": [0.0] * 3, "std": [1.0] * 3}}  # decides no image


class Product(NamedTuple):
    """A product, what it is to be made by, and what it was made by."""

    file: Path
    plan_file: Path
    plan: Values
    made: Values | None  # None where it is not there, empty where it does not say
    remark: str = ""  # how far it is, or what made it

    @property
    def state(self) -> str:
        """`done`, `to do` where it is not there, `stale` where it is not as planned."""
        return "to do" if self.made is None else "done" if self.made == self.plan else "stale"

    @property
    def why(self) -> str:
        """Why it is stale, as `lr: 0.05 -> 0.03`; else a remark, if there is one."""
        if self.made == {}:
            return self.remark or "it does not say what made it"
        stale = self.state == "stale"
        return few(changes(self.made or {}, self.plan)) if stale else self.remark


class Products:
    """The data sets and networks of `params.yaml`, and the plans of runs; each file is read once.

    A user's own file is part of a plan by its hash. One that is not there counts as the one that
    the product was made from; without a product, as the one `recorded` in what was made from that.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self._made_data = cache(made_data)
        self._made_network = cache(made_network)

    def data(self, name: str, recorded: Mapping[str, Any] | None = None) -> Product:
        """The prepared file of a data set."""
        made = self._made_data(name)
        plan = data_plan(self.params.datasets[name], (recorded or {}) if made is None else made)
        return Product(files.data_file(name), files.data_plan(name), plan, made)

    def network(self, name: str, recorded: Mapping[str, Any] | None = None) -> Product:
        """The checkpoint of a source."""
        made = self._made_network(name)
        known = (recorded or {}) if made is None else made
        source = self.params.sources[name]
        plan: Values = {"network": source.network.model_dump(), "data": source.data}
        if source.data is not None and source.pretraining is not None:
            augmentation = self.params.datasets[source.data].augmentation.model_dump()
            images = self.data(source.data, known.get("dataset")).plan
            plan["dataset"] = images | {"augmentation": augmentation}
            plan["pretraining"] = source.pretraining.model_dump()
        if source.weights is not None:
            plan["weights"] = source.weights
            if Path(source.weights).parent.parent != files.ARCHIVES:  # whose checksums are fixed
                plan[WEIGHTS_SHA256] = _content(source.weights, known.get(WEIGHTS_SHA256))
        return Product(files.checkpoint_file(name), files.checkpoint_plan(name), plan, made)

    def run_plan(self, run: Run, recorded: Mapping[str, Any]) -> Values:
        """The plan of a run, whose record has the plan `recorded`."""
        data = recorded.get("data", {})
        needed = dict.fromkeys(filter(None, (run.data, run.source_data)))
        plan: Values = {
            "parameters": run.parameters,
            "data": {name: self.data(name, data.get(name)).plan for name in needed},
            "network": self.network(run.source, recorded.get("network")).plan,
        }
        if self.params.studies[run.study].follow_code:
            plan["code"] = code_hash(LOOP, method_module(run.method))
        return plan


def data_plan(dataset: Dataset, known: Mapping[str, Any]) -> Values:
    """What decides the images of a data set; `known` is what a product says of it."""
    plan = dataset.model_dump(mode="json", exclude={"title", "augmentation"})
    if "file" in plan:
        plan[FILE_SHA256] = _content(plan["file"], known.get(FILE_SHA256))
    return plan


def study_values(params: Params, plan: Plan) -> Values:
    """What `params.yaml` says of a study: itself a `params.yaml`, without all that is of others."""
    study = params.studies[plan.study]
    experiments = study.experiments.values()
    named = {name for each in experiments for name in each.benchmarks} | study.scale.keys()
    benchmarks = [params.benchmarks[name] for name in named]
    users: list[Any] = [*benchmarks, *experiments, *study.scale.values()]
    sources = {each.source for each in users} - {None}
    datasets = {each.data for each in benchmarks} | {params.sources[s].data for s in sources}
    values = params.model_dump(mode="json", exclude_unset=True, exclude={"gpu_slots", "tracking"})
    values["study"] = plan.study
    kinds = {"benchmarks": named, "sources": sources, "datasets": datasets, "studies": {plan.study}}
    for key, names in kinds.items():
        values[key] = {name: entry for name, entry in values[key].items() if name in names}
    alone = params.model_copy(update={"studies": {plan.study: study}})
    for name, entry in values["benchmarks"].items():
        buffers = {None, *alone.buffers(name)}
        for method in entry["methods"].values():
            if "overrides" in (method or {}):
                of_study = [o for o in method["overrides"] if o.get("buffer") in buffers]
                method["overrides"] = of_study
    return values


def study_digest(plan: Plan, records: Mapping[str, str] | None = None) -> str:
    """What a study's collected records and report carry, by the records' SHA-256.

    And each table and search of it, whose own records Snakemake looks at, without them.
    """
    best = plan.params.studies[plan.study].best_hyperparameters
    found = plain_values(Path(best).read_bytes(), Path(best)) if best else None
    in_order = json.dumps(study_values(plan.params, plan))  # of its experiments, which decides too
    made_from = [in_order, dict(records or {}), _content(files.PRINTED, None), found]
    return digest([files.TABLES_VERSION, *made_from])


def digest(values: Any) -> str:
    """SHA-256 of plain values, in hex."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def read_plan(path: Path) -> Values:
    """A plan from its file. Raises `UserError` where there is none."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, TypeError, ValueError) as error:
        raise UserError(f"no plan in {path} ({error}): `twf plan STUDY --write`") from None


def planned_run(path: Path) -> tuple[Run, Values]:
    """The run of a plan file, `plans/STUDY/RUN.json`, and its plan."""
    plan = read_plan(path)
    try:
        return Run(id=path.stem, study=path.parent.name, **plan["parameters"]), plan
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not the plan of a run ({error})") from None


def planned_source(plan: Values) -> tuple[Source, Dataset | None]:
    """The source that a network's plan is of, and the data set that it is trained on."""
    source = Source.model_validate({k: plan[k] for k in Source.model_fields.keys() & plan.keys()})
    return source, planned_dataset(plan["dataset"]) if "dataset" in plan else None


def planned_dataset(plan: Values) -> Dataset:
    """The data set that a plan is of."""
    return _dataset.validate_python({**_any, **{k: plan[k] for k in plan if k != FILE_SHA256}})


def made_data(name: str) -> Values | None:
    """The plan that a prepared data set carries; None without one, empty where it does not say."""
    path = files.data_file(name)
    return files.about(path, MADE_OF) if path.exists() else None


def made_network(name: str) -> Values | None:
    """The plan that a checkpoint carries; None without one, empty where it does not say."""
    path = files.checkpoint_file(name)
    return dict(files.about(path).get("plan", {})) if path.exists() else None


def require_as_planned(file: Path, made: Values | None, plan: Values, remedy: str) -> None:
    """Raise `UserError` where what a job needs is not there, or not as its plan has it."""
    if made is None:
        raise UserError(f"no {file}: {remedy} makes it")
    if made != plan:
        why = Product(file, file, plan, made).why
        raise UserError(
            f"{file} is not as planned ({why}): {remedy} makes it anew; "
            "where that says it is there, plan anew what asks for it: `twf plan STUDY --write`"
        )


def named(kind: str, plan_file: Path) -> Path:
    """A plan's file, or an error that says which there are."""
    if plan_file.exists():
        return plan_file
    plans = {path.stem: path for path in sorted(plan_file.parent.glob("*.json"))}
    listed = f"`twf plan {plan_file.parent.name}` lists them" if kind == "run" else ""
    return lookup(kind, plans, plan_file.stem, str(plan_file.parent), listed)


_GROUPS = {"parameters", "hyperparameters", "pretraining"}  # where a key's own name is enough


def changes(
    made: Mapping[str, Any], plan: Mapping[str, Any], common_only: bool = False
) -> list[str]:
    """What differs, as `lr: 0.05 -> 0.03`; with `common_only`, of the keys that both have."""
    old, new = _flat(made), _flat(plan)
    differences = []
    for key in [key for key in new if key in old] if common_only else old | new:
        before, now = ("none" if values.get(key) is None else values[key] for values in (old, new))
        *groups, last = key.split(".")
        if before == now:
            continue
        if key == "code":
            differences.append(f"code of {plan['parameters']['method']}")
        elif last in (FILE_SHA256, WEIGHTS_SHA256):
            kind = "data" if last == FILE_SHA256 else "weights"
            differences.append(f"another file of the {kind}")
        else:
            where = ".".join([*(group for group in groups if group not in _GROUPS), last])
            differences.append(f"{where}: {before} -> {now}")
    return differences


def _flat(values: Mapping[str, Any], prefix: str = "") -> Values:
    """Nested values by their keys, which dots join."""
    flat: Values = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping)
        flat |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return flat


def _content(file: str | Path, known: str | None) -> str | None:
    """The SHA-256 of a file; the known one where it is not there."""
    return files.sha256(Path(file)) if Path(file).is_file() else known
