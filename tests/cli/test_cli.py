"""The `twf` command: what it says of a user's mistake, its help, and what it plans."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path

import official
import pytest
import yaml
from support import PROJECT, Said, mistake, publish_nothing, succeed

from twf import cli, files
from twf.cli.training import refuse_wrong_variables
from twf.errors import UserError
from twf.results import record as records
from twf.results import status
from twf.study import expand, reading
from twf.study.params import Params
from twf.study.products import Products

FINETUNE, RUN = "split-target.finetune.s0", "split-target.er.16.s0"

pytestmark = pytest.mark.usefixtures("shallow")
TARGET, ORIGIN = (str(files.data_file(name)) for name in ("target", "origin"))
CHECKPOINT = str(files.checkpoint_file("origin"))


def change_params(change: Callable[[dict], object]) -> None:
    values = yaml.safe_load(files.PARAMS.read_text())
    change(values)
    files.PARAMS.write_text(yaml.safe_dump(values, sort_keys=False))


@pytest.mark.parametrize("words", ["plan", "data prepare target", f"run tiny {RUN}", "report tiny"])
def test_outside_a_project_folder_every_command_says_so(twf, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    message = mistake(twf(words))
    assert f"params.yaml in {tmp_path}" in message
    assert list(tmp_path.iterdir()) == []


UNKNOWN = {  # what is unknown, and what there is
    **dict.fromkeys(["plan large", "report large", "data fetch --study large"], ("large", "tiny")),
    "run tiny split-target.er.99.s0": ("split-target.er.99.s0", "`twf plan tiny`"),
    "table tiny other": ("other", "main.split-target"),
    "data fetch cifar10 nothing": ("nothing", "cifar100"),
    "data prepare nothing": ("nothing", "origin, target"),
    "pretrain nothing": ("nothing", "origin"),
}


@pytest.mark.parametrize("words", UNKNOWN)
def test_an_unknown_name_is_answered_with_those_there_are(twf, tiny_project, words):
    unknown, known = UNKNOWN[words]
    message = mistake(twf(words))
    assert f"'{unknown}'" in message and known in message


MISSING = {  # the file that is not there, and what makes it
    "data prepare target": ("archives/target.npz", "put it there"),
    "pretrain origin": (ORIGIN, "`twf data prepare origin`"),
    f"run tiny {RUN}": (TARGET, "`twf data prepare target`"),
    f"run tiny {RUN} ": (CHECKPOINT, "`twf pretrain origin`"),
    "run tiny split-target.derpp-pretraining.16.s0": (ORIGIN, "`twf data prepare origin`"),
    "collect tiny": ("results/tiny/runs/split-target.joint.s0.parquet", "`twf plan tiny`"),
    "report tiny": ("results/tiny/runs.parquet", "snakemake --cores all"),
}


MISUSED = {  # a command that would do something else, and what is said
    f"run tiny {RUN} --seed 7": "--seed is for --again",
    f"run a b --again {files.record_file('tiny', RUN)}": "one run, not a and b",
    "pretrain plans/data/target.json": "not the plan of a source: these are in plans/checkpoints",
    "data prepare plans/checkpoints/origin.json": "not the plan of a data set",
}


@pytest.mark.parametrize("words", MISUSED)
def test_what_would_be_something_else_is_refused(twf, tiny_inputs, words):
    succeed(twf, "plan --write")
    assert MISUSED[words] in mistake(twf(words))


@pytest.mark.parametrize("words", MISSING)
def test_a_missing_input_is_named_with_the_command_that_makes_it(twf, tiny_inputs, words):
    path, remedy = MISSING[words]
    Path(path).unlink(missing_ok=True)
    if words == "pretrain origin":  # a network that is there is not trained again
        Path(CHECKPOINT).unlink()
    message = mistake(twf(words))
    assert path in message and remedy in message


def test_what_is_there_of_a_study_makes_its_tables_and_report(twf, tiny_inputs):
    """One run is done; data and checkpoint are gone."""
    planned = len(expand(tiny_inputs, "tiny").runs)
    publish_nothing()
    succeed(twf, f"run tiny {RUN}")
    for path in (ORIGIN, CHECKPOINT):
        Path(path).unlink()
    said = twf("report tiny --partial")
    assert said.code == 0
    assert f"1 of {planned} records" in said.out
    assert RUN in files.runs_page("tiny").read_text()
    page = files.report_file("tiny").read_text()
    assert f"1 of {planned} planned runs" in page and f"{planned - 1} missing" in page
    assert "of the paper, ours are" not in page  # which prints no number of the miniature
    assert files.table_file("tiny", "main.split-target", "md").exists()


@pytest.mark.parametrize(
    ("words", "key", "value", "named"),
    [
        (
            f"run tiny {RUN}",
            "sources.origin.network.width",
            8,
            [CHECKPOINT, "`twf pretrain origin`", "network.width: 4 -> 8"],
        ),
        (f"run tiny {RUN}", "datasets.target.classes", 2, [TARGET, "`twf data prepare target`"]),
    ],
)
def test_parameters_that_do_not_fit_what_is_there_are_explained(
    twf, tiny_inputs, words, key, value, named
):
    *parents, last = key.split(".")
    change_params(lambda values: reduce(getitem, parents, values).update({last: value}))
    message = mistake(twf(words))
    assert all(part in message for part in named)


def test_a_diverging_pretraining_is_a_users_mistake(twf, tiny_inputs):
    change_params(lambda v: v["sources"]["origin"]["pretraining"].update(lr=1e30))
    made = Path(CHECKPOINT).read_bytes()
    said = twf("pretrain origin")
    assert said.code == 2 and "Traceback" not in said.err
    last = said.err.splitlines()[-1]  # after lines of progress
    assert last.startswith("error: ") and "sources.origin.pretraining.lr" in last
    assert Path(CHECKPOINT).read_bytes() == made


WRONG = {"TRACKING": "sometimes", "GPU_SLOTS": '"2"', "EXECUTION": "'plain'", "SAVE_EVERY": "often"}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_variable_is_refused_before_any_job(twf, tiny_inputs, monkeypatch, name):
    """As in a file of variables whose quotes are taken for part of the values."""
    monkeypatch.setenv(f"TWF_{name}", WRONG[name])
    with pytest.raises(UserError, match=f"TWF_{name}"):
        refuse_wrong_variables(tiny_inputs)
    assert f"TWF_{name}" in twf(f"run tiny {RUN}").err
    monkeypatch.setenv(f"TWF_{name}", "")
    refuse_wrong_variables(tiny_inputs)


def test_a_mistake_reaches_the_shell_without_a_traceback(tmp_path):
    """The same through a real process, by the entry that needs no installed script."""
    words = [sys.executable, "-m", "twf", "plan", "large"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert mistake(Said(done.returncode, done.stdout, done.stderr)).count("\n") == 1


@pytest.mark.parametrize("words", ["data fetch target", "data fetch --study tiny"])
def test_archives_are_fetched_by_name_or_for_a_study(twf, tiny_project, monkeypatch, words):
    """The miniature study's data set `target` is an archive of a registry of one's own."""
    some, content = Path("some.npz").absolute(), b"some bytes"
    some.write_bytes(content)
    official.register(monkeypatch, "target", [some], like="resnet50-imagenet")

    def make_official(values: dict) -> None:
        del values["datasets"]["target"]["file"]
        values["datasets"]["target"] |= {"reader": "official", "archive": "target"}

    change_params(make_official)
    succeed(twf, words)
    assert (files.archive_folder("target") / "some.npz").read_bytes() == content
    assert "--study STUDY" in mistake(twf("data fetch"))


def test_the_whole_way_from_archive_to_report_and_what_plan_says_on_it(twf, tiny_project):
    def states() -> list:
        params = reading.load(files.PARAMS)
        plan, products = expand(params, "tiny"), Products(params)
        runs = status.of_runs(plan)
        data = {name: products.data(name) for name in plan.data}
        networks = {name: products.network(name) for name in plan.sources}
        return [{n: each.state for n, each in group.items()} for group in (data, networks, runs)]

    main = {"methods": ["finetune", "er"]}
    change_params(lambda values: values["studies"]["tiny"]["experiments"]["main"].update(main))
    names = [["origin", "target"], ["origin"], [FINETUNE, RUN]]
    assert states() == [dict.fromkeys(group, "to do") for group in names]
    assert "snakemake --cores all results/tiny/report.html" in twf("plan").out

    succeed(twf, "data prepare target", "data prepare origin", "pretrain origin")
    succeed(twf, f"run tiny {FINETUNE}", f"run tiny {RUN}")
    assert states() == [dict.fromkeys(group, "done") for group in names]
    assert "snakemake" not in twf("plan").out

    publish_nothing()
    succeed(twf, "collect tiny", "table tiny main.split-target", "report tiny")
    assert str(files.report_file("tiny")) in twf("report tiny").out
    assert "Split Target" in files.report_file("tiny").read_text()
    assert "er minus er" in twf("compare tiny er er").out
    succeed(twf, "evidence add tiny")

    change_params(lambda v: v["benchmarks"]["split-target"]["methods"]["er"].update(lr=0.06))
    assert states()[2] == {FINETUNE: "done", RUN: "stale"}
    assert all(said in twf("plan").out for said in ("1 done, 1 stale", "stale, lr: 0.05 -> 0.06"))


def test_a_table_is_made_of_its_own_records(twf, tiny_inputs):
    def add(values: dict) -> None:
        experiments = values["studies"]["tiny"]["experiments"]
        experiments["one"] = experiments["main"] | {"methods": ["finetune", "er"]}

    change_params(add)
    table = files.table_file("tiny", "one.split-target", "md")
    publish_nothing()
    succeed(twf, f"run tiny {RUN}", "table tiny one.split-target")
    (er,) = [line for line in table.read_text().splitlines() if line.startswith("| ER ")]
    assert re.search(r"\d\.\d\d", er)
    assert records.carried(table) == ""  # not of all its runs, so that Snakemake makes it again
    assert not files.runs_file("tiny").exists()
    record = files.record_file("tiny", RUN)
    record.write_bytes(record.read_bytes()[:-1])
    assert RUN in mistake(twf("table tiny one.split-target"))


def test_planning_imports_no_torch(twf, tiny_inputs: Params):
    """Not even where a record is read to tell whether it is stale."""
    succeed(twf, f"run tiny {RUN}")
    code = (
        "import atexit, sys; sys.argv = ['twf', 'plan']\n"
        "heavy = {'torch', 'pandas', 'sklearn', 'matplotlib', 'wandb'}\n"
        "atexit.register(lambda: print(heavy & set(sys.modules), file=sys.stderr))\n"
        "from twf import cli; cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "1 done" in done.stdout
    assert done.stderr.strip() == "set()"


def test_a_run_by_hand_writes_the_plans_first_and_a_plan_file_does_the_same_run(twf, tiny_inputs):
    """The second reads nothing of params.yaml."""
    path, record = files.run_plan("tiny", FINETUNE), files.record_file("tiny", FINETUNE)
    assert "`twf plan STUDY --write`" in mistake(twf(f"run {path}"))
    assert "`twf plan tiny`" in mistake(twf("run tiny"))
    succeed(twf, f"run tiny {FINETUNE}")
    first, made_at = records.read(record).to_pylist()[0], record.stat().st_mtime_ns
    assert "is there, as planned" in twf(f"run tiny {FINETUNE}").out
    network = Path(CHECKPOINT).read_bytes()
    assert "is there, as planned" in twf("pretrain origin").out
    assert Path(CHECKPOINT).read_bytes() == network
    assert record.stat().st_mtime_ns == made_at
    record.unlink()
    files.PARAMS.write_text("{")
    succeed(twf, f"run {path}")
    again = records.read(record).to_pylist()[0]
    same = ("digest", "accuracy_class_il", "accuracy_task_il", "provenance")
    assert {key: first[key] for key in same} == {key: again[key] for key in same}


def test_a_record_is_made_again_from_itself(twf, tiny_inputs):
    succeed(twf, f"run tiny {RUN}")
    said = twf(f"run --again {files.record_file('tiny', RUN)} {RUN}")
    assert said.code == 0 and "the record's, to the last bit" in said.out


def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("twf.checkout.refuse_other_code", interrupted)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130


@pytest.mark.parametrize("words", ["--all", "--stages"])
@pytest.mark.parametrize(("redirected", "lines"), [("| true", 0), (">&-", 0), ("> /dev/full", 1)])
def test_an_output_that_is_closed_or_full_ends_a_command_in_a_line(words, redirected, lines):
    command = f"{sys.executable} -m twf plan demo {words} {redirected}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=PROJECT)
    assert len(done.stderr.splitlines()) == lines, done.stderr
