"""What may stand in `params.yaml`, what is said of a mistake, and that it is the paper's."""

import copy
import csv
import shutil
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import PROJECT

from twf import files
from twf.errors import UserError
from twf.study import expand, params, reading
from twf.study.methods import METHODS
from twf.study.types import Hyperparameters

PROJECT_VALUES = yaml.load((PROJECT / files.PARAMS).read_text(), yaml.CSafeLoader)
REMOVE = object()

Values = dict[str, Any]


def put(values: Values, path: str, value: Any) -> Values:
    """Set the key at a path like `studies.tiny.seeds`, or remove it."""
    *parents, last = path.split(".")
    inner: Any = values
    for part in parents:
        inner = inner[int(part)] if isinstance(inner, list) else inner[part]
    if value is REMOVE:
        del inner[last]
    else:
        inner[int(last) if isinstance(inner, list) else last] = value
    return values


def complaint(values: Any) -> str:
    with pytest.raises(UserError) as caught:
        expand(reading.check(values), "tiny")
    return str(caught.value)


SPLIT = "benchmarks.split-target"
MAIN = "studies.tiny.experiments.main"
ORIGIN = "sources.origin"
IMAGES = "datasets.target.augmentation"
ER_ACE = {"title": "A", "methods": ["er-ace"]}
ER = {"title": "A", "benchmarks": ["split-target"], "methods": ["er"]}
STUDY = {"title": "A", "seeds": [0], "experiments": {"main": ER}}


def searching(**grids: Any) -> Values:
    """An experiment that searches."""
    return ER | {"search": {"held_out": 0.5, "grids": {"er": {"lr": [0.1]}} | grids}}


# A key or value that is wrong, and what the message must name.
WRONG: list[tuple[str, Any, list[str]]] = [
    # unknown keys, from the top to the deepest
    ("zzz", 1, ["'zzz'", "study, gpu_slots, tracking, fidelity"]),
    (f"{IMAGES}.flips", 1, [f"{IMAGES}: ", "did you mean 'flip'"]),
    (f"{SPLIT}.methods.twf.lambda_pf", 1, [f"{SPLIT}.methods.twf: ", "did you mean 'lambda_fp'"]),
    (f"{SPLIT}.methods.er.alpha", 1, [f"{SPLIT}.methods.er: ", "'alpha'", "lr, overrides"]),
    (f"{SPLIT}.methods.twf.overrides", [{"bufer": 16}], ["overrides.0: ", "'buffer'"]),
    ("fidelity.F18", "paper", ["fidelity.F18", "F1, F2"]),
    # wrong types, and numbers that mean nothing
    *((f"{SPLIT}.epochs", value, [f"{SPLIT}.epochs: "]) for value in ("five", 2.5, True, REMOVE)),
    *((f"{SPLIT}.methods.er.lr", v, ["er.lr: "]) for v in ("0.1", 0, float("inf"), float("nan"))),
    (f"{SPLIT}.methods.derpp.overrides", [{"beta": -2.0}], ["derpp.overrides.0.beta", "-2.0"]),
    (f"{SPLIT}.data", "My Set", [f"{SPLIT}.data: "]),
    (f"{SPLIT}.data", "x" * 41, [f"{SPLIT}.data: ", "at most 40 characters"]),
    (f"{IMAGES}.mean", [0.5, 0.5], [f"{IMAGES}.mean: "]),
    *(("studies.tiny.seeds.0", seed, ["studies.tiny.seeds.0: "]) for seed in (-1, 2**63)),
    # what stands twice would count twice
    (f"{MAIN}.methods", ["er", "er-ace", "er"], [f"{MAIN}.methods: ", "'er' stands twice"]),
    (f"{SPLIT}.buffers", [16, 16], [f"{SPLIT}.buffers: 16 stands twice"]),
    # words that are not among those allowed
    (f"{MAIN}.methods", ["er", "dreams"], [f"{MAIN}.methods.1", "'dreams'", *METHODS]),
    ("datasets.target.reader", "csv", ["datasets.target", "'csv'", "'archive'", "'digits'"]),
    # what only several keys together can tell
    (f"{SPLIT}.tasks", 3, [f"{SPLIT}.tasks: 4 classes"]),
    (f"{SPLIT}.data", "targets", [f"{SPLIT}.data", "did you mean 'target'", "target, origin"]),
    (f"{SPLIT}.source", "orign", [f"{SPLIT}.source", "did you mean 'origin'"]),
    (f"{ORIGIN}.data", "nothing", [f"{ORIGIN}.data", "'nothing'", "target, origin"]),
    (f"{ORIGIN}.data", REMOVE, [ORIGIN, "'data'", "'pretraining'"]),
    ("study", "large", ["study", "'large'", "tiny"]),
    ("fidelity.F6", REMOVE, ["fidelity", "F6"]),
    (f"{MAIN}.benchmarks", ["split"], [f"{MAIN}.benchmarks", "'split'", "split-target"]),
    (f"{MAIN}.source", "svhn", [f"{MAIN}.source", "'svhn'", "origin"]),
    (f"{SPLIT}.methods.er.overrides", [{"buffer": 8, "lr": 0.1}], ["er.overrides: buffer 8"]),
    ("studies.tiny.scale", {"x": {"epochs": 1, "source": "x"}}, ["studies.tiny.scale.x: "]),
    (f"{MAIN}.methods", ["er"], [f"{MAIN}: variants.a: er-ace is no method of the experiment"]),
    (f"{MAIN}.variants.a.fidelity", {"F11": "paper"}, [f"{MAIN}: variants.a.fidelity: ", "F11"]),
    (f"{SPLIT}.methods.finetune.overrides", [{"buffer": 16, "lr": 1}], ["finetune", "buffer 16"]),
    (f"{SPLIT}.lr_decay", {"factor": 0.1, "epochs": [9]}, [f"{SPLIT}.lr_decay.epochs: "]),
    (f"{MAIN}.benchmarks", ["other"], ["studies.tiny.scale.split-target: "]),
    (f"{MAIN}.variants.a.without_buffer", True, [f"{MAIN}: variants.a.without_buffer: "]),
    (f"{ORIGIN}.network.width", 3, [f"{ORIGIN}.network.width: "]),
    (MAIN, searching() | {"probes": True}, [f"{MAIN}: probes: a search"]),
    (MAIN, searching(er={"lr": [0.0]}), [f"{MAIN}.search.grids.er: lr: ", "is: 0.0"]),
    (MAIN, searching(er={"alpha": [1.0]}), [f"{MAIN}.search.grids.er: ", "'alpha'", "lr"]),
    (MAIN, searching(twf={"lr": [1.0]}), [f"{MAIN}: search.grids: twf is no method of"]),
    ("studies.data", STUDY, ["studies.data: another name"]),
    (f"{SPLIT}.lr_decay", {"factor": 0.1, "epochs": [1]}, ["tiny.scale.split-target.lr_decay"]),
    (f"{SPLIT}.methods.er-ace", REMOVE, ["'er-ace' has no hyperparameters on Split Target"]),
    (f"{MAIN}.variants.a.hyperparameters", {"alpha": 1}, [f"{MAIN}.variants.a", "'alpha'", "lr"]),
    (f"{MAIN}.variants.a.hyperparameters", {"lr": 0.0}, [f"{MAIN}.variants.a", "lr: ", "is: 0.0"]),
]


@pytest.mark.parametrize(
    ("path", "value", "named"), WRONG, ids=[f"{path}={value!r:.20}" for path, value, _ in WRONG]
)
def test_a_mistake_is_named_in_one_line_with_its_key_and_what_is_allowed(
    path, value, named, tiny_values
):
    tiny_values["studies"]["tiny"]["experiments"]["main"]["variants"] = {"a": dict(ER_ACE)}
    tiny_values["benchmarks"]["other"] = copy.deepcopy(tiny_values["benchmarks"]["split-target"])
    tiny_values["studies"]["tiny"]["scale"] = {"split-target": {"epochs": 1, "source": "origin"}}
    expand(reading.check(tiny_values), "tiny")  # right before the change
    text = complaint(put(tiny_values, path, value))
    assert not [part for part in named if part not in text], text
    lines = 1 + text.startswith("params.yaml is invalid") + (path == "studies.tiny.scale")
    assert len(text.splitlines()) == lines, "a line for each mistake"


def test_several_mistakes_are_all_listed(tiny_values):
    between_keys = copy.deepcopy(tiny_values)
    put(tiny_values, f"{SPLIT}.epochs", 0)
    put(tiny_values, f"{SPLIT}.methods.twf.lambda_pf", 1.0)
    text = complaint(put(tiny_values, "studies.tiny.seeds", []))
    assert all(part in text for part in ("epochs", "'lambda_pf'", "seeds"))
    put(between_keys, f"{SPLIT}.source", "nowhere")
    put(between_keys, f"{MAIN}.source", "nowhere")
    assert len(complaint(put(between_keys, "study", "large")).splitlines()) == 4


def paths(values: Any, prefix: str = "") -> list[str]:
    """Every key path of nested values."""
    if isinstance(values, dict):
        items = list(values.items())
    elif isinstance(values, list):
        items = list(enumerate(values))
    else:
        return []
    return [p for k, v in items for p in (f"{prefix}{k}", *paths(v, f"{prefix}{k}."))]


odd = st.sampled_from([None, True, -1, 0, 10**30, 1.5, "", "x", [], [[1]], {}, {"x": 1}, {1: 2}])


@settings(max_examples=60)
@example("datasets.cifar10.classes", 10**30)
@given(st.sampled_from(paths(PROJECT_VALUES)), odd)
def test_no_value_whatever_makes_the_check_itself_fail(path, value):
    """A wrong value is a `UserError` that names a key on its way, never another exception."""
    values = put(copy.deepcopy(PROJECT_VALUES), path, value)
    message = ""
    try:
        reading.check(values)
    except UserError as error:
        message = str(error)
    if message:  # some values are right
        assert message.startswith("params.yaml")
    if message and value != {}:  # which is right itself; then those miss it that name its keys
        assert path.split(".")[0] in message


@pytest.mark.parametrize(
    "content",
    [
        *(b"study: [tiny", b"\tstudy: tiny", b"? [a]\n: b", b"a: \xff", b"\0", b"", b"[]", b"3"),
        *(b"a: !!int one", b"a: !!timestamp x"),
    ],
)
def test_what_is_no_mapping_in_yaml_is_a_users_mistake(tmp_path, content):
    (tmp_path / "params.yaml").write_bytes(content)
    with pytest.raises(UserError, match=r"params\.yaml"):
        reading.load(tmp_path / "params.yaml")


def test_a_key_given_twice_is_named_with_its_line_and_a_missing_file_with_the_remedy(tmp_path):
    (tmp_path / "twice.yaml").write_text("study: tiny\nstudy: other\n")
    with pytest.raises(UserError, match=r"twice.yaml is not valid YAML: line 2: .*study"):
        reading.load(tmp_path / "twice.yaml")
    for absent in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(UserError, match=rf"{absent}.*project's folder"):
            reading.load(absent)


def test_params_are_read_as_dvc_writes_them(tmp_path):
    """DVC and JSON write YAML 1.2, where `1e-05` is a number and `off` a word."""
    serialize = pytest.importorskip("dvc.utils.serialize")
    path = tmp_path / "params.yaml"
    shutil.copy2(PROJECT / "params.yaml", path)
    with serialize.modify_yaml(path) as values:
        values["tracking"]["mode"] = "off"
        values["benchmarks"]["split-digits"]["methods"]["twf"]["lambda_fp"] = 0.00001
        values["studies"]["demo"]["title"] = "010"
    text = path.read_text(encoding="utf-8")
    assert "1e-05" in text and "mode: off" in text, "else this test tries nothing"
    loaded = reading.load(path)
    assert loaded.tracking.mode == "off"
    changed = loaded.benchmarks["split-digits"].hyperparameters("twf", 200, "class-il")
    assert changed.lambda_fp == 1e-05
    assert loaded.studies["demo"].title == "010"


# The paper's hyperparameters, as printed.
OUR_NAMES = {  # others are called as in the paper
    ("twf", "lambda"): "lambda_diversity",
    ("oewc", "lambda"): "lambda_ewc",
    ("co2l", "lambda"): "lambda_ird",
}


def test_a_hyperparameter_may_have_a_plain_type():
    class Mine(Hyperparameters):
        depth: int = 2

    mine = params._settings("mine", Mine)(lr=0.1, overrides=[{"buffer": 5, "depth": 3}])
    assert (mine.depth, mine.overrides[0].depth) == (2, 3)


def printed_rows() -> list[dict[str, str]]:
    with (PROJECT / "tests/hyperparameters.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_cell_has_the_hyperparameters_that_the_paper_prints_and_no_others():
    benchmarks = reading.load(PROJECT / files.PARAMS).benchmarks
    printed: dict[tuple[str, ...], dict[str, float]] = {}
    for row in printed_rows():
        if (method := row["method"]) != "shared":
            cell = (row["benchmark"], method, row["buffer_size"], row["protocol"])
            name = OUR_NAMES.get((method, row["hyperparameter"]), row["hyperparameter"])
            printed.setdefault(cell, {})[name] = float(row["value"])
    ours = {}
    for name in ("split-cifar10", "split-cifar100", "split-cub200"):
        for method in {method for _, method, *_ in printed}:
            buffers = benchmarks[name].buffers if METHODS[method].rehearsal else [None]
            for buffer, protocol in product(buffers, params.PROTOCOLS):
                values = benchmarks[name].hyperparameters(method, buffer, protocol)
                cell = (name, method, str(buffer or ""), protocol)
                ours[cell] = values.model_dump(exclude={"chunks"})
    assert ours == printed


def test_what_the_methods_share_is_what_the_paper_prints():
    loaded = reading.load(PROJECT / files.PARAMS)
    shared = [row for row in printed_rows() if row["method"] == "shared"]
    assert len(shared) == 2 * (4 + 5 + 3)  # for each protocol; Split CUB-200 has no decay
    for row in shared:
        benchmark = loaded.benchmarks[row["benchmark"]]
        source, decay = loaded.sources[benchmark.source], benchmark.lr_decay
        ours = {
            "epochs_per_task": str(benchmark.epochs),
            "batch_size": str(benchmark.batch_size),
            "lr_decay": "no" if decay is None else str(decay.factor),
            "lr_decay_steps": decay and str(decay.epochs),
            # published weights stand for the 50 epochs on ImageNet
            "pretrain_epochs": "50" if source.weights else str(source.pretraining.epochs),
        }
        assert ours[row["hyperparameter"]] == row["value"], row
