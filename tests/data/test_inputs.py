"""Data sets and networks are held to params.yaml by what their headers say made them."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from project import PROJECT

from twf import files, study
from twf.data import inputs, preflight, store
from twf.data.prepare import prepare
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.jobs.pretraining import export_weights, import_weights, pretrain
from twf.jobs.run import execute
from twf.results import status
from twf.results.frame import Results
from twf.study import reading
from twf.study.params import Params

CPU = torch.device("cpu")
CHECKPOINT = files.checkpoint_file("origin")
DATA = files.data_file("origin")
SHARED = Path("shared.safetensors")
RUN = "split-target.er.16.s0"

Values = dict[str, Any]


@pytest.fixture
def values(tiny_inputs, tiny_values) -> Values:
    """The parameters of a project whose data and network are made."""
    return tiny_values


def state(params: Params) -> tuple[str, str]:
    """What `twf plan` says of the network, and why it is stale."""
    found = status.of_plan(params, study.expand(params, "tiny"))
    return found["sources"]["origin"], found["stale"].get(str(CHECKPOINT), "")


def of(values: Values) -> tuple[str, str]:
    return state(reading.check(values))


def recipe(values: Values, **changes: Any) -> Params:
    values["sources"]["origin"]["pretraining"] |= changes
    return reading.check(values)


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a checkpoint says of itself."""
    loaded = checkpoints.load(path, reading.load(files.PARAMS).sources["origin"].network)
    about = copy.deepcopy(loaded.about)
    change(about)
    checkpoints.save(path, loaded.network(), about)


CHANGES: dict[str, Callable[[Values], object]] = {
    "epochs: 1 -> 7": lambda v: v["sources"]["origin"]["pretraining"].update(epochs=7),
    "seed: 0 -> 1": lambda v: v["sources"]["origin"]["pretraining"].update(seed=1),
    "seed: 0 -> 3": lambda v: v["sources"]["origin"].update(seeds=[3, 4]),
    "precision: tf32 -> auto": lambda v: v["sources"]["origin"]["pretraining"].update(
        precision="auto"
    ),
    "network.width: 4 -> 5": lambda v: v["sources"]["origin"]["network"].update(width=5),
    "dataset.augmentation.flip: True -> False": lambda v: v["datasets"]["origin"][
        "augmentation"
    ].update(flip=False),
    "dataset.file: archives/origin.npz -> a.npz": lambda v: v["datasets"]["origin"].update(
        file="a.npz"
    ),
    "data: origin -> target": lambda v: v["sources"]["origin"].update(data="target"),
}


@pytest.mark.parametrize("why", CHANGES)
def test_a_network_of_another_recipe_is_stale_and_no_run_starts_from_it(values, twf, why):
    assert of(values) == ("done", "")
    before = CHECKPOINT.read_bytes()
    CHANGES[why](values)
    params = reading.check(values)
    found, said = state(params)
    assert found == "stale" and why in said
    run = study.expand(params, "tiny").named_run(RUN)
    with pytest.raises(UserError, match=r"stale.*`twf (pretrain train|data prepare) origin`"):
        execute(params, run.model_copy(update={"source_data": None}), CPU)
    assert CHECKPOINT.read_bytes() == before and not files.record_file("tiny", RUN).exists()


def test_what_decides_no_network_leaves_it_as_it_is(values):
    values["datasets"]["origin"]["title"] = "Other words"
    values["sources"]["origin"]["seeds"] = [0, 1]  # the first has the source's own name
    values["datasets"]["target"]["augmentation"]["flip"] = False
    assert of(values) == ("done", "")


def test_a_stale_network_makes_its_records_stale_until_it_is_made_anew(values, twf):
    params = reading.check(values)
    plan = study.expand(params, "tiny").only("main")
    run = plan.named_run(RUN)
    execute(params, run, CPU)
    assert status.run_state(params, run)[0] == "done"
    changed = recipe(values, epochs=2)
    later = study.expand(changed, "tiny")
    assert status.run_state(changed, run) == ("stale", f"{CHECKPOINT} is stale (epochs: 1 -> 2)")
    assert Results.of_records(later, [RUN]).runs.loc[RUN, "status"] == "stale"
    one = later.model_copy(update={"runs": {RUN: run}})
    with pytest.raises(UserError, match="epochs: 1 -> 2"):
        status.require_done(one)
    files.PARAMS.write_text(json.dumps(values))
    assert "origin stale (epochs: 1 -> 2)" in twf("plan tiny").out
    assert "epochs: 1 -> 2" in twf(f"run tiny {RUN}").err
    assert twf("pretrain train origin").code == 0
    assert state(changed) == ("done", "")
    assert status.run_state(changed, run) == ("stale", f"another {CHECKPOINT}")


def test_a_network_says_no_more_than_an_older_version_has_written(values):
    """Such a header has not what the data set was made of."""
    rewritten(CHECKPOINT, lambda about: about.pop("dataset"))
    values["datasets"]["origin"]["augmentation"]["flip"] = False
    assert of(values) == ("done", "")
    assert state(recipe(values, epochs=2)) == ("stale", "epochs: 1 -> 2")


def test_a_network_follows_its_data(values, twf):
    """Where they are stale, and where they were made anew by hand; not where they are missing."""
    arrays = store.load(DATA)
    other = store.Split(255 - arrays.train_images.numpy(), arrays.train_labels.numpy())
    made_of = reading.check(values).datasets["origin"].made_of
    store.save(DATA, "origin", store.DataArrays(other, other, arrays.classes), made_of)
    assert of(values) == ("stale", f"another {DATA}")
    DATA.unlink()
    assert of(values) == ("done", "")
    store.save(
        DATA, "origin", store.DataArrays(other, other, arrays.classes), made_of | {"size": 8}
    )
    rewritten(CHECKPOINT, lambda about: about.pop("dataset"))
    assert of(values) == ("stale", f"{DATA} is stale")
    with pytest.raises(UserError, match=r"size: 8 -> 16.*`twf data prepare origin`"):
        pretrain(reading.check(values), "origin", CPU)


# Data sets

DIGITS = {"title": "Digits", "reader": "digits", "classes": 10, "size": 16} | {
    "test_share": 0.3,
    "seed": 0,
}
LETTERS = {"title": "Letters", "reader": "letters", "classes": 26, "size": 16} | {
    "train_per_class": 2,
    "test_per_class": 1,
    "seed": 0,
}


def dataset(values: Values, given: Values) -> Any:
    given = given | {"augmentation": values["datasets"]["origin"]["augmentation"]}
    values["datasets"]["mine"] = given
    return reading.check(values).datasets["mine"]


@pytest.mark.parametrize(
    ("given", "change", "old"),
    [
        (DIGITS, {"seed": 1}, False),
        (DIGITS, {"test_share": 0.25}, False),
        (DIGITS, {"size": 32}, True),
        (LETTERS, {"train_per_class": 3}, True),
        (LETTERS, {"test_per_class": 2}, True),
        (LETTERS, {"reader": "textures"}, False),
        (DIGITS, {"classes": 9}, True),
    ],
)
def test_data_of_other_parameters_are_stale(tiny_project, tiny_values, given, change, old):
    """`old`: also those of an older version, whose header says no more than shapes."""
    path = files.data_file("mine")
    made = dataset(tiny_values, given)
    prepare("mine", made, path)
    assert inputs.data("mine", made) == ([], set())
    titled = dataset(tiny_values, given | {"title": "Other"})
    assert inputs.data("mine", titled).changes == []
    other = dataset(tiny_values, given | change)
    ((key, value),) = change.items()
    assert inputs.data("mine", other).changes == [f"{key}: {given[key]} -> {value}"]
    with pytest.raises(UserError, match=f"{key}: .*`twf data prepare mine`"):
        inputs.require_data("mine", other)

    loaded = store.load(path)
    splits = (
        store.Split(getattr(loaded, f"{s}_images").numpy(), getattr(loaded, f"{s}_labels").numpy())
        for s in ("train", "test")
    )
    store.save(path, "mine", store.DataArrays(*splits, loaded.classes))
    held = inputs.data("mine", made)
    assert held.changes == [] and "reader" in held.unsaid
    assert bool(inputs.data("mine", other).changes) == old


def test_stale_data_that_cannot_be_made_are_named(values):
    values["datasets"]["origin"]["file"] = "nowhere.npz"
    changed = reading.check(values).datasets["origin"]
    with pytest.raises(UserError, match=r"nowhere\.npz"):
        preflight.data("origin", changed)


# Weights from elsewhere


def exported(values: Values, **recipe_of: Any) -> Params:
    """Weights trained by a changed recipe, exported to `SHARED`; params.yaml has the former one."""
    before = copy.deepcopy(values)
    params = recipe(values, **recipe_of)
    if recipe_of:
        pretrain(params, "origin", CPU)
    export_weights(params, "origin", SHARED, CPU)
    values.clear()
    values |= before
    return reading.check(values)


def about() -> dict[str, Any]:
    found = inputs.about_network(CHECKPOINT)
    assert found is not None
    return found


def test_imported_weights_are_taken_until_params_says_otherwise(values, capsys):
    """Of this recipe, of another, or of none that is known."""
    network = checkpoints.load(CHECKPOINT, reading.check(values).sources["origin"].network)
    for file in ("same", "other", "unknown.pth"):
        fresh = copy.deepcopy(values)
        if file == "unknown.pth":
            torch.save(network.tensors, file)
            import_weights(reading.check(fresh), "origin", Path(file), CPU)
        else:
            params = exported(fresh, **({} if file == "same" else {"epochs": 2}))
            import_weights(params, "origin", SHARED, CPU)
        assert ("epochs: 2 -> 1" in capsys.readouterr().out) == (file == "other")
        assert (inputs.IN_PLACE_OF in about()) == (file != "same")
        assert of(fresh) == ("done", "")
        DATA.rename("away")
        assert of(fresh) == ("done", "")
        Path("away").rename(DATA)
        before = CHECKPOINT.read_bytes()
        changed = recipe(fresh, epochs=5)
        found, why = state(changed)
        assert found == "stale" and why.startswith("epochs: ") and why.endswith(" -> 5")
        with pytest.raises(UserError, match="was imported.*-> 5"):  # not trained over
            preflight.network(changed, "origin")
        with pytest.raises(UserError, match="-> 5"):
            export_weights(changed, "origin", Path("again.safetensors"), CPU)
        assert CHECKPOINT.read_bytes() == before
        CHECKPOINT.unlink()
        pretrain(reading.check(values), "origin", CPU)


def test_weights_that_params_names_are_those_of_its_recipe(values):
    params = exported(values)
    shutil.copy(SHARED, "copy.safetensors")
    assert of(values) == ("done", "")
    values["sources"]["origin"]["weights"] = str(SHARED)
    assert of(values) == ("stale", f"weights: none -> {SHARED}")
    import_weights(reading.check(values), "origin", SHARED, CPU)
    there = CHECKPOINT.read_bytes()
    assert of(values) == ("done", "") and inputs.IN_PLACE_OF not in about()
    DATA.unlink()
    assert of(values) == ("done", "")

    changed = recipe(copy.deepcopy(values), epochs=9)
    assert state(changed) == ("stale", "epochs: 1 -> 9")
    for refused in (
        lambda: preflight.network(changed, "origin"),
        lambda: import_weights(changed, "origin", SHARED, CPU),
    ):
        with pytest.raises(UserError, match=r"shared.safetensors .*epochs: 1 -> 9"):
            refused()
    assert CHECKPOINT.read_bytes() == there

    rewritten(SHARED.rename(Path("given.safetensors")), lambda a: a.update(seconds=1.0))
    Path("given.safetensors").rename(SHARED)
    assert of(values) == ("stale", f"another {SHARED}")
    import_weights(params, "origin", Path("copy.safetensors"), CPU)
    assert of(values) == ("stale", f"another {SHARED}")
    SHARED.unlink()
    assert of(values) == ("done", "")


def test_ones_own_weights_in_place_of_those_that_params_names(values):
    exported(values, epochs=2)
    SHARED.rename("mine.safetensors")
    values["sources"]["origin"]["weights"] = "named.pth"
    DATA.unlink()
    import_weights(reading.check(values), "origin", Path("mine.safetensors"), CPU)
    torch.save({}, "named.pth")
    assert of(values) == ("done", "")
    values["sources"]["origin"]["weights"] = "other.pth"
    assert of(values) == ("stale", "weights: named.pth -> other.pth")


def test_the_records_in_git_are_done_beside_the_weights_in_git(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(PROJECT / files.PARAMS, files.PARAMS)
    Path("results").symlink_to(PROJECT / "results")
    params = reading.load(files.PARAMS)
    names = ("overnight", "corners-5")
    plans = {name: study.expand(params, name) for name in names}

    def states() -> dict[str, list[str]]:
        return {
            name: [status.run_state(params, run)[0] for run in plan.runs.values()]
            for name, plan in plans.items()
        }

    before = states()
    assert set(before["overnight"]) == {"done"} and "done" in before["corners-5"]
    sources = {source for plan in plans.values() for source in plan.sources}
    for source in sources:
        import_weights(params, source, Path(str(params.sources[source].weights)), CPU)
    assert states() == before
    for plan in plans.values():
        assert set(status.of_plan(params, plan)["sources"].values()) == {"done"}


def test_another_file_of_the_users_makes_its_data_stale_whatever_its_time(values):
    dataset = reading.check(values).datasets["target"]
    file = Path(dataset.file)
    assert inputs.data("target", dataset).changes == []
    time = file.stat().st_mtime_ns
    with np.load(file) as arrays:
        changed = dict(arrays) | {"x_test": 255 - arrays["x_test"]}
    np.savez(file, **changed)
    os.utime(file, ns=(time - 10**9, time - 10**9))
    assert inputs.data("target", dataset).changes == [f"another {file}"]
    prepare("target", dataset, files.data_file("target"))
    assert inputs.data("target", dataset).changes == []
    file.unlink()  # it may be elsewhere by now
    assert inputs.data("target", dataset).changes == []
