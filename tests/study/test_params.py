"""What may stand in `params.yaml`, what is said of a mistake, and that it is the paper's."""

from __future__ import annotations

import copy
import csv
import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from project import PROJECT

from twf import files
from twf.errors import UserError
from twf.study import params, reading
from twf.study.methods import METHODS

PROJECT_VALUES = yaml.load((PROJECT / files.PARAMS).read_text(), yaml.CSafeLoader)
REMOVE = object()

Values = dict[str, Any]


def put(values: Values, path: str, value: Any) -> Values:
    """Set the key at a path like `studies.tiny.seeds`, or remove it."""
    *parents, last = path.split(".")
    place: Any = values
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if value is REMOVE:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return values


def complaint(values: Any) -> str:
    with pytest.raises(UserError) as caught:
        reading.check(values)
    return str(caught.value)


SPLIT = "benchmarks.split-target"
MAIN = "studies.tiny.experiments.main"
ORIGIN = "sources.origin"
IMAGES = "datasets.target.augmentation"

# Keys that are unknown, from the top to the deepest, and the one that is proposed.
UNKNOWN = {
    "benchmark": "benchmarks",
    "tracking.mod": "mode",
    f"{SPLIT}.epoch": "epochs",
    "datasets.target.classses": "classes",
    f"{IMAGES}.flips": "flip",
    f"{ORIGIN}.pretraining.epoch": "epochs",
    f"{SPLIT}.methods.joints": "joint",
    f"{SPLIT}.methods.twf.lambda_pf": "lambda_fp",
    f"{MAIN}.method": "methods",
}
# Values of wrong types, and numbers that mean nothing.
WRONG = {
    f"{SPLIT}.epochs": ["five", 2.5, True, None, REMOVE],
    f"{SPLIT}.buffers": [16],
    f"{SPLIT}.methods.er": [0.1],
    f"{SPLIT}.methods.er.lr": ["0.1", False, -0.1, 0, float("inf"), float("nan")],
    f"{SPLIT}.methods.derpp.alpha": [-1],
    f"{SPLIT}.batch_size": [0],
    f"{SPLIT}.tasks": [1],
    f"{SPLIT}.data": ["My Set"],
    f"{IMAGES}.flip": [1],
    f"{IMAGES}.mean": [[0.5, 0.5]],
    "datasets.target.classes": ["4"],
    "datasets.target.size": [8],
    "studies.tiny.seeds.0": [-1, 2**63],
}
# Words that are not among those allowed, and what only the whole can tell; what must be named.
OTHERS: list[tuple[str, Any, list[str]]] = [
    ("zzz", 1, ["'zzz'", "study, gpu_slots, tracking, fidelity"]),
    (f"{SPLIT}.methods.er.alpha", 1, [f"{SPLIT}.methods.er: ", "'alpha'", "lr, overrides"]),
    ("fidelity.F18", "paper", ["fidelity.F18", "'F1', 'F2'"]),
    (f"{SPLIT}.methods.twf.overrides", [{"bufer": 16}], ["overrides.0", "'bufer'", "'buffer'"]),
    (f"{SPLIT}.methods.derpp.overrides", [{"beta": -2.0}], ["derpp.overrides.0.beta", "-2.0"]),
    (f"{MAIN}.methods", ["er", "dreams"], [f"{MAIN}.methods.1", "'dreams'", *map(repr, METHODS)]),
    (f"{ORIGIN}.network.architecture", "resnet34", ["architecture", "'resnet18'", "'resnet50'"]),
    ("datasets.target.reader", "csv", ["datasets.target", "'csv'", "'archive'", "'digits'"]),
    ("tracking.mode", "yes", ["tracking.mode", "'offline'", "'off'", "'yes'"]),
    (
        f"{SPLIT}.methods.er.overrides",
        [{"protocol": "domain-il", "lr": 0.1}],
        ["er.overrides.0.protocol", "'class-il'", "'task-il'", "'domain-il'"],
    ),
    (f"{SPLIT}.tasks", 3, [f"{SPLIT}.tasks: 3", "4 classes of target", "2, 4"]),
    (f"{SPLIT}.data", "targets", [f"{SPLIT}.data", "'targets'", "target, origin"]),
    (f"{SPLIT}.source", "orign", [f"{SPLIT}.source", "'orign'", "allowed: origin"]),
    (f"{ORIGIN}.data", "nothing", [f"{ORIGIN}.data", "'nothing'", "target, ori"]),
    ("study", "large", ["study", "'large'", "tiny"]),
    (f"{MAIN}.benchmarks", ["split"], [f"{MAIN}.benchmarks", "'split'", "split-target"]),
    (f"{MAIN}.source", "svhn", [f"{MAIN}.source", "'svhn'", "origin"]),
    (
        f"{SPLIT}.methods.er.overrides",
        [{"buffer": 8, "lr": 0.1}],
        ["er.overrides.0.buffer: 8", f"{SPLIT}.buffers", "16"],
    ),
    (
        "studies.tiny.scale",
        {"split-x": {"epochs": 1, "source": "origin"}},
        ["studies.tiny.scale: 'split-x' does not exist", "split-target"],
    ),
    (
        "studies.tiny.scale",
        {"split-target": {"epochs": 1, "source": "x"}},
        ["studies.tiny.scale.split-target.source: 'x' does not exist", "origin"],
    ),
    (f"{SPLIT}.methods.er", REMOVE, [f"{MAIN}.methods", "'er'", f"{SPLIT}.methods.er"]),
    (f"{ORIGIN}.data", REMOVE, [ORIGIN, "'data'", "'pretraining'"]),
]
CASES = [
    *((path, 1, [*path.rsplit(".", 1), repr(other)]) for path, other in UNKNOWN.items()),
    *(
        (path, value, [f"{path}: "] if value is REMOVE else [f"{path}: ", repr(value)])
        for path, values in WRONG.items()
        for value in values
    ),
    *OTHERS,
]


@pytest.mark.parametrize(
    ("path", "value", "named"), CASES, ids=[f"{path}={value!r:.20}" for path, value, _ in CASES]
)
def test_a_wrong_value_is_named_with_its_place_and_what_is_allowed(path, value, named, tiny_values):
    reading.check(tiny_values)  # right before the change
    text = complaint(put(tiny_values, path, value))
    assert text.startswith("params.yaml")
    for part in named:
        assert part in text
    assert len(text.splitlines()) == 2, "one mistake, one line"


def test_several_mistakes_are_all_listed(tiny_values):
    put(tiny_values, f"{SPLIT}.epochs", 0)
    put(tiny_values, f"{SPLIT}.methods.twf.lambda_pf", 1.0)
    put(tiny_values, f"{SPLIT}.methods.twf.lambda_f", 1.0)
    put(tiny_values, "sources.origin.pretraining.lr", "fast")
    put(tiny_values, "studies.tiny.seeds", [])
    text = complaint(tiny_values)
    for part in ("epochs", "'lambda_pf'", "'lambda_f'", "sources.origin.pretraining.lr", "seeds"):
        assert part in text


def test_several_mistakes_between_keys_are_all_listed(tiny_values):
    put(tiny_values, f"{SPLIT}.tasks", 3)
    put(tiny_values, f"{SPLIT}.source", "nowhere")
    put(tiny_values, "study", "large")
    assert len(complaint(tiny_values).splitlines()) == 4


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


def load_text(folder: Path, text: str | bytes) -> params.Params:
    (folder / "params.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return reading.load(folder / "params.yaml")


def test_a_number_in_quotes_is_refused_with_the_remedy(tmp_path, tiny_values):
    text = yaml.safe_dump(put(tiny_values, f"{SPLIT}.methods.er.lr", 0.0625))
    with pytest.raises(UserError, match=rf"{SPLIT}.methods.er.lr: .*without quotes.*'1e-4'"):
        load_text(tmp_path, text.replace("0.0625", "'1e-4'"))
    loaded = load_text(tmp_path, text.replace("0.0625", "1e-4"))
    assert loaded.benchmarks["split-target"].hyperparameters("er", 16, "class-il").lr == 1e-4


@pytest.mark.parametrize(
    ("path", "text", "remedy"),
    [
        ("datasets.target.augmentation.flip", "yes", "write true or false"),
    ],
)
def test_what_yaml_1_1_has_otherwise_is_refused_with_the_remedy(
    tmp_path, tiny_values, path, text, remedy
):
    written = yaml.safe_dump(put(tiny_values, path, "there"))
    with pytest.raises(UserError, match=rf"{path}: .*{remedy}"):
        load_text(tmp_path, written.replace(": there", f": {text}"))


def test_a_key_given_twice_is_named_with_its_line(tmp_path, tiny_values):
    text = yaml.safe_dump(tiny_values, sort_keys=False)
    line = len(text.splitlines()) + 1
    with pytest.raises(UserError, match=rf"params.yaml is not valid YAML: line {line}: .*study"):
        load_text(tmp_path, text + "study: other\n")
    with pytest.raises(UserError, match=r"line 2: .*lr"):
        load_text(tmp_path, "a:\n  b: [{lr: 1, lr: 2}]\n")


@pytest.mark.parametrize(
    "content",
    [
        *(b"study: [tiny", b"a: b: c", b"\tstudy: tiny", b"? [a]\n: b", b"{{ x }}: 1"),
        *(b"a: \xff", b"\0", b"", b"[]", b"study", b"3"),
        *(b"a: !!int one", b"a: !!float", b"a: !!bool maybe", b"a: !!timestamp x"),
    ],
)
def test_what_is_no_mapping_in_yaml_is_a_users_mistake(tmp_path, content):
    with pytest.raises(UserError, match=r"params\.yaml"):
        load_text(tmp_path, content)


@pytest.mark.parametrize("name", ["absent.yaml", ""])  # the second is a folder
def test_a_missing_file_is_named_with_the_remedy(tmp_path, name):
    with pytest.raises(UserError, match=rf"{name}.*--params"):
        reading.load(tmp_path / name)


def test_a_later_override_wins_and_others_do_not_touch_a_cell(tiny_values):
    tiny_values["benchmarks"]["split-target"]["buffers"] = [16, 32]
    put(
        tiny_values,
        f"{SPLIT}.methods.derpp",
        {
            "lr": 0.1,
            "alpha": 1.0,
            "beta": 1.0,
            "overrides": [
                {"buffer": 32, "alpha": 2.0, "beta": 2.0},
                {"protocol": "task-il", "alpha": 3.0},
                {"buffer": 16, "protocol": "task-il", "lr": 0.5, "beta": 0.0},
            ],
        },
    )
    benchmark = reading.check(tiny_values).benchmarks["split-target"]
    found = {
        (buffer, protocol): tuple(
            benchmark.hyperparameters("derpp", buffer, protocol).model_dump().values()
        )
        for buffer in (16, 32)
        for protocol in params.PROTOCOLS
    }
    assert found == {
        (16, "class-il"): (0.1, 1.0, 1.0),
        (16, "task-il"): (0.5, 3.0, 0.0),
        (32, "class-il"): (0.1, 2.0, 2.0),
        (32, "task-il"): (0.1, 3.0, 2.0),
    }


def test_the_schema_accepts_the_projects_params_and_refuses_unknown_keys(tiny_values):
    schema = json.loads((PROJECT / files.SCHEMA).read_text())
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.check_schema(schema)
    validator.validate(PROJECT_VALUES)
    validator.validate(tiny_values)
    for path in (
        "zzz",
        "tracking.zzz",
        "datasets.target.zzz",
        f"{SPLIT}.zzz",
        f"{SPLIT}.methods.zzz",
        f"{SPLIT}.methods.twf.zzz",
        f"{MAIN}.zzz",
    ):
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(put(copy.deepcopy(tiny_values), path, 1))


# The paper's hyperparameters, as printed.
OUR_NAMES = {  # others are called as in the paper
    ("twf", "lambda"): "lambda_diversity",
    ("oewc", "lambda"): "lambda_ewc",
    ("co2l", "lambda"): "lambda_ird",
}


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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"methods": ["twf"]}, "methods: 'twf' is not among methods"),
        ({"without_buffer": True}, "without_buffer: 'er-ace' needs its buffer; allowed: er, .*twf"),
        ({"hyperparameters": {"alpha": 1.0}}, "hyperparameters: er-ace has no 'alpha'"),
        ({"hyperparameters": {"lr": 0.0}}, r"hyperparameters\.lr: .*greater than 0 \(is: 0.0\)"),
    ],
)
def test_a_variant_that_cannot_be_is_refused_with_its_key(tiny_values, change, named):
    main = tiny_values["studies"]["tiny"]["experiments"]["main"]
    main |= {
        "methods": ["er-ace", "oewc"],
        "variants": {"a": {"methods": ["er-ace"], "title": "A"}},
    }
    main["variants"]["a"] |= change
    with pytest.raises(UserError, match=rf"studies\.tiny\.experiments\.main\.variants\.a\.{named}"):
        reading.check(tiny_values)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({}, "'twf' is not among methods; allowed: er-ace"),
        ({"variants": {"a": {"title": "A"}}}, "variants are compared with their own method"),
        ({"methods": ["er-ace", "twf"]}, None),
    ],
)
def test_a_baseline_is_a_method_that_others_can_be_compared_with(tiny_values, change, named):
    main = tiny_values["studies"]["tiny"]["experiments"]["main"]
    main |= {"methods": ["er-ace"], "baseline": "twf"} | change
    if named is None:
        assert reading.check(tiny_values).studies["tiny"].experiments["main"].baseline == "twf"
        return
    with pytest.raises(UserError, match=rf"experiments\.main\.baseline: {named}"):
        reading.check(tiny_values)


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
    found = reading.load(path)
    assert found.tracking.mode == "off"
    changed = found.benchmarks["split-digits"].hyperparameters("twf", 200, "class-il")
    assert changed.lambda_fp == 1e-05
    assert found.studies["demo"].title == "010"


@pytest.mark.parametrize("name", ["off", "on", "yes", "no"])
def test_a_variants_name_may_be_a_word_of_older_yaml(tmp_path, tiny_values, name):
    experiment = tiny_values["studies"]["tiny"]["experiments"]["main"]
    experiment["variants"] = {"there": {"title": "Off", "hyperparameters": {"lr": 0.2}}}
    text = yaml.safe_dump(tiny_values).replace("there:", f"{name}:")
    assert load_text(tmp_path, text).studies["tiny"].experiments["main"].variants.keys() == {name}


@pytest.mark.parametrize("name", ["null", "0.1"])
def test_a_variants_name_that_is_no_text_is_refused(tmp_path, tiny_values, name):
    experiment = tiny_values["studies"]["tiny"]["experiments"]["main"]
    experiment["variants"] = {"there": {"title": "Off", "hyperparameters": {"lr": 0.2}}}
    text = yaml.safe_dump(tiny_values).replace("there:", f"{name}:")
    with pytest.raises(UserError, match=r"variants.*quotes"):
        load_text(tmp_path, text)


def test_a_method_without_hyperparameters_on_a_benchmark_is_named_with_the_remedy(tiny_values):
    del tiny_values["benchmarks"]["split-target"]["methods"]["er"]
    tiny_values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["twf"]
    benchmark = reading.check(tiny_values).benchmarks["split-target"]
    with pytest.raises(UserError, match="'er' has no hyperparameters on Split Target; add .*yaml"):
        benchmark.hyperparameters("er", 16, "class-il")
