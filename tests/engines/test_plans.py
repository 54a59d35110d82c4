"""Plan files: their times say what their contents say, whatever became of product or clock."""

import copy
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from support import PROJECT, execute, mistake, pretrain, publish_nothing, split_pictures, succeed

from twf import files
from twf.data.prepare import prepare
from twf.engines import plans
from twf.errors import UserError
from twf.jobs import checkpoints
from twf.learning.randomness import CPU
from twf.results import record, status
from twf.study import expand, reading
from twf.study.params import Params
from twf.study.products import Products, read_plan, study_digest, study_values

pytestmark = pytest.mark.usefixtures("shallow")
DATA, DATA_PLAN = files.data_file("target"), files.data_plan("target")
RUN = "split-target.er.16.s0"
RECORD, RUN_PLAN = files.record_file("tiny", RUN), files.run_plan("tiny", RUN)
ARCHIVE = Path("archives/target.npz")

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def params(tiny_inputs: Params, tiny_values: dict[str, Any]) -> Params:
    """The miniature with one run; its data and network are made."""
    tiny_values["studies"]["tiny"]["experiments"]["main"]["methods"] = ["er"]
    return reading.check(tiny_values)


@pytest.fixture
def changed(tiny_values: dict[str, Any], params: Params) -> Callable[[Change], Params]:
    """`changed(change)`: the same with other values."""

    def change(by: Change) -> Params:
        values = copy.deepcopy(tiny_values)
        by(values)
        return reading.check(values)

    return change


def lr(rate: float) -> Change:
    return lambda v: v["benchmarks"]["split-target"]["methods"]["er"].update(lr=rate)


def do_run(params: Params) -> None:
    (run,) = expand(params, "tiny").runs.values()
    execute(params, run, CPU)


def write_params(params: Params) -> None:
    values = json.loads(params.model_dump_json(exclude_unset=True))
    files.PARAMS.write_text(yaml.safe_dump(values, sort_keys=False))


def is_older(plan: Path, product: Path) -> bool:
    return plan.stat().st_mtime < product.stat().st_mtime


def test_a_plan_is_older_than_what_is_as_planned_and_newer_than_what_is_not(params, changed):
    plans.write(params, "tiny")
    assert is_older(DATA_PLAN, DATA)
    assert RUN_PLAN.stat().st_mtime < 2**25  # of a record that is not there: before all
    assert plans.settings() == (1, params.tracking)
    do_run(params)
    assert plans.write(params, "tiny").why == {}
    assert is_older(RUN_PLAN, RECORD)
    assert plans.write(changed(lr(0.07)), "tiny").why == {str(RECORD): "lr: 0.05 -> 0.07"}
    assert not is_older(RUN_PLAN, RECORD)
    before = RUN_PLAN.stat()
    plans.write(changed(lr(0.07)), "tiny")
    after = RUN_PLAN.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # not written
    plans.write(changed(lr(0.05)), "tiny")
    assert is_older(RUN_PLAN, RECORD)


@pytest.mark.parametrize("at", [0.0, 1.6e8, 4e9])
def test_a_products_time_says_nothing(params, changed, at):
    """Of 1970, of 1975, or in the future: then it is set back where the two differ."""
    do_run(params)
    os.utime(RECORD, (at, at))
    plans.write(params, "tiny")
    assert is_older(RUN_PLAN, RECORD)
    plans.write(changed(lr(0.07)), "tiny")
    assert not is_older(RUN_PLAN, RECORD)
    assert RUN_PLAN.stat().st_mtime <= time.time()


@pytest.mark.parametrize("end", [0, 4, 100, -1])
def test_a_product_that_is_cut_off_counts_as_differing(params, end):
    do_run(params)
    for product in (RECORD, DATA):
        product.write_bytes(product.read_bytes()[:end])
    assert plans.write(params, "tiny").why.keys() == {str(RECORD), str(DATA)}
    assert not is_older(RUN_PLAN, RECORD) and not is_older(DATA_PLAN, DATA)


def test_without_a_collected_table_a_studys_plan_is_newer_than_a_table_of_another(params, changed):
    plans.write(params, "tiny")
    table = files.table_file("tiny", "main.split-target", "md")
    table.parent.mkdir(parents=True, exist_ok=True)
    table.write_text(record.TABLE_MARK.format(study_digest(expand(params, "tiny"))))
    plans.write(params, "tiny")
    assert is_older(files.study_plan("tiny"), table)
    plans.write(changed(lambda v: v["studies"]["tiny"].update(title="Another")), "tiny")
    assert not is_older(files.study_plan("tiny"), table)


def test_plans_are_replaced_never_changed_in_place_and_go_with_what_is_planned(params, changed):
    """A hard link, as into DVC's cache, stays; and DVC sees plans of one length as two by time."""
    plans.write(params, "tiny")
    before, one = RUN_PLAN.read_text(), RUN_PLAN.stat()
    os.link(RUN_PLAN, "link")
    plans.write(changed(lr(0.07)), "tiny")
    two = RUN_PLAN.stat()
    assert Path("link").read_text() == before != RUN_PLAN.read_text()
    assert one.st_size == two.st_size and one.st_mtime != two.st_mtime
    seeds = changed(lambda v: v["studies"]["tiny"].update(seeds=[1]))
    plans.write(seeds, "tiny")
    assert [path.stem for path in RUN_PLAN.parent.iterdir()] == ["split-target.er.16.s1"]


# Users' own files


def test_an_own_archive_counts_by_its_content_whatever_its_time(params):
    """One that is absent counts as the one that the product was made from."""
    do_run(params)
    ahead = time.time() + 3 * 3600
    os.utime(ARCHIVE, (ahead, ahead))
    assert plans.write(params, "tiny").why == {}
    pictures = split_pictures(4)
    pictures["x_train"][0] ^= 1
    np.savez(ARCHIVE, **pictures)
    os.utime(ARCHIVE, (1.6e8, 1.6e8))  # older than what it replaces
    why = plans.write(params, "tiny").why
    assert why == dict.fromkeys((str(DATA), str(RECORD)), "another file of the data")
    prepare("target", params.datasets["target"], DATA)
    assert plans.write(params, "tiny").why.keys() == {str(RECORD)}
    do_run(params)
    ARCHIVE.unlink()
    assert plans.write(params, "tiny").why == {}
    DATA.unlink()
    assert plans.write(params, "tiny").why == {}


def test_own_weights_that_a_source_names_count_by_their_content(params, changed):
    def name(values: dict[str, Any]) -> None:
        values["sources"]["origin"] = {
            "network": {"architecture": "resnet18", "width": 4},
            "weights": "mine.pth",
        }

    checkpoint = files.checkpoint_file("origin")
    network = params.sources["origin"].network
    torch.save(checkpoints.load(checkpoint, network).tensors, "mine.pth")
    named = changed(name)
    pretrain(named, "origin", CPU)
    assert plans.write(named, "tiny").why == {}
    Path("mine.pth").unlink()
    assert plans.write(named, "tiny").why == {}
    Path("mine.pth").write_bytes(b"others")
    assert plans.write(named, "tiny").why == {str(checkpoint): "another file of the weights"}
    archived = {"weights": "archives/resnet50-imagenet/mine.pth"}  # where only checksums count
    Path(archived["weights"]).parent.mkdir(parents=True)
    Path("mine.pth").rename(archived["weights"])
    with pytest.raises(UserError, match="sources.origin.weights: .*mine.pth.*move"):
        plans.write(changed(lambda values: values["sources"]["origin"].update(archived)), "tiny")


# A method's code


def test_runs_follow_their_methods_code_where_the_study_says_so(params, changed, monkeypatch):
    """Data and networks, which studies share, never do."""
    plans.write(params, "tiny")
    assert "code" not in read_plan(RUN_PLAN)
    following = changed(lambda v: v["studies"]["tiny"].update(follow_code=True))
    do_run(following)
    assert plans.write(following, "tiny").why == {}
    with monkeypatch.context() as edited:
        edited.setattr("twf.study.products.code_hash", lambda *_: "0" * 64)
        assert plans.write(following, "tiny").why == {str(RECORD): "code of er"}
        assert Products(following).network("origin").state == "done"
    off = changed(lambda v: v["studies"]["tiny"].update(follow_code=False))
    assert plans.write(off, "tiny").why == {}  # to follow, or not to, makes nothing again
    do_run(off)
    assert plans.write(following, "tiny").why == {}
    monkeypatch.setattr("twf.results.status.code_hash", lambda *_: "0" * 64)
    assert plans.write(off, "tiny").why == {}
    assert status.of_runs(expand(off, "tiny"))[RUN].why.endswith(status.OTHER_CODE)


# A study


@pytest.fixture
def reported(params: Params, twf: Any) -> Params:
    """The study's run is done, collected and reported."""
    publish_nothing()
    write_params(params)
    do_run(params)
    succeed(twf, "collect tiny", "report tiny")
    return params


STUDY, PLAN = files.runs_file("tiny"), files.study_plan("tiny")
ESTIMATES = files.estimates_file("tiny", "parquet")
OTHERWISE: list[Change] = [
    lambda v: v["studies"]["tiny"]["experiments"]["main"].update(title="B"),
    lambda v: v["fidelity"].update(F8="paper"),
    lambda v: v["studies"]["tiny"].update(seeds=[0, 1]),
    lr(0.07),
    lambda v: v["studies"]["tiny"].update(title="Another \N{CRICKET BAT AND BALL}"),
]


def test_the_collected_table_and_the_report_carry_the_studys_plan(reported, changed, twf):
    """Whatever time `--touch` or DVC gives them."""
    plans.write(reported, "tiny")
    assert is_older(PLAN, STUDY) and record.carried(STUDY) == record.carried(ESTIMATES)
    for change in OTHERWISE:
        other = changed(change)
        for _ in range(2):
            plans.write(other, "tiny")
            assert not is_older(PLAN, STUDY)
            os.utime(STUDY)  # as `--touch` does
            os.utime(ESTIMATES)
    succeed(twf, f"collect {PLAN}")
    for path in (ESTIMATES, files.report_file("tiny")):  # of the table before
        os.utime(path, (4e9, 4e9))
    plans.write(other, "tiny")
    assert is_older(PLAN, STUDY)
    assert is_older(ESTIMATES, STUDY) and is_older(files.report_file("tiny"), STUDY)
    succeed(twf, f"report {PLAN}")  # with a character beyond U+FFFF in its title


def test_a_table_or_search_of_an_edit_that_is_undone_is_made_again(reported, changed, twf):
    def also_searched(v: dict[str, Any], title: str) -> None:
        experiments = v["studies"]["tiny"]["experiments"]
        search = {"held_out": 0.5, "grids": {"er": {"lr": [0.05]}}}
        experiments["search"] = experiments["main"] | {"search": search, "title": title}

    params, other = (changed(lambda v, title=title: also_searched(v, title)) for title in "AB")
    write_params(params)
    trials = [name for name in expand(params, "tiny").runs if name != RUN]
    succeed(twf, *(f"run tiny {name}" for name in trials), "collect tiny", "report tiny")
    for by in (params, other, params):
        plans.write(by, "tiny")
        assert is_older(PLAN, STUDY) == (by is params)
    table, best = files.table_file("tiny", "main.split-target", "md"), files.search_files("tiny")[1]
    collected = STUDY.read_bytes()
    for command, path in ((f"table {PLAN} main.split-target", table), (f"search {PLAN}", best)):
        plans.write(other, "tiny")
        succeed(twf, command)
        STUDY.unlink()  # by records alone, by a clock that was ahead
        os.utime(path, (4e9, 4e9))
        plans.write(params, "tiny")
        assert 0 < path.stat().st_mtime < PLAN.stat().st_mtime
        STUDY.write_bytes(collected)
        plans.write(params, "tiny")
        assert PLAN.stat().st_mtime < STUDY.stat().st_mtime
        assert is_older(ESTIMATES, STUDY)
        succeed(twf, f"report {PLAN}")
        plans.write(params, "tiny")
        assert is_older(PLAN, STUDY) and is_older(STUDY, path) and is_older(STUDY, ESTIMATES)


def test_other_numbers_of_the_paper_are_another_plan(reported):
    more = "1,split-target,er,,class-il,16,67.24,\n"
    files.PRINTED.write_text(files.PRINTED.read_text() + more)
    plans.write(reported, "tiny")
    assert not is_older(PLAN, STUDY)


def test_what_is_as_planned_is_given_the_order_in_which_it_is_made(reported):
    """Git and DVC bring files in any order. Another record of the same plan is not as planned."""
    made = [files.metrics_file("tiny"), files.runs_page("tiny"), files.report_file("tiny")]
    for number, path in enumerate(made):
        os.utime(path, (1.6e8 + number, 1.6e8 + number))
    plans.write(reported, "tiny")
    assert all(STUDY.stat().st_mtime <= path.stat().st_mtime for path in made)
    do_run(reported)  # another time and host, maybe other last bits
    plans.write(reported, "tiny")
    assert not is_older(PLAN, STUDY)


def test_a_studys_plan_keeps_the_order_of_its_experiments(params, tiny_values):
    """The first is the main one of metrics and report."""
    (main,) = tiny_values["studies"]["tiny"]["experiments"].values()
    made = []
    for order in (["b", "a"], ["a", "b"]):
        tiny_values["studies"]["tiny"]["experiments"] = dict.fromkeys(order, main)
        both = reading.check(tiny_values)
        plan = expand(both, "tiny")
        made.append(study_digest(plan))
        plans.write(both, "tiny")
        assert list(expand(reading.load(PLAN), "tiny").tables) == list(plan.tables)
        assert list(plan.tables) == [f"{name}.split-target" for name in order]
    assert len(set(made)) == 2


def test_what_reads_a_studys_plan_file_needs_nothing_else_of_the_parameters(reported, twf):
    """And it says the same as all of them."""
    plans.write(reported, "tiny")
    files.PARAMS.write_text("{")
    before = record.carried(STUDY)
    succeed(twf, f"collect {PLAN}", f"report {PLAN}")
    assert record.carried(STUDY) == before


def test_the_plan_of_each_of_the_projects_studies_stands_for_the_same_runs():
    params = reading.load(PROJECT / "params.yaml")
    for name in (n for n, study in params.studies.items() if not study.best_hyperparameters):
        plan = expand(params, name)
        pruned = reading.check(json.loads(json.dumps(study_values(params, plan))))
        assert expand(pruned, name).runs == plan.runs, name
        assert expand(pruned, name).tables == plan.tables, name


def test_a_tuned_study_has_no_plans_until_the_other_has_searched(params, changed):
    best = "results/search/tables/best-hyperparameters.yaml"
    tuned = changed(lambda v: v["studies"]["tiny"].update(best_hyperparameters=best))
    with pytest.raises(UserError, match="snakemake --cores all results/search"):
        plans.write(tuned, "tiny")
    assert not RUN_PLAN.exists() and DATA_PLAN.exists()


def test_the_best_of_an_unknown_benchmark_or_of_other_cells_alone_are_refused(params, changed):
    best = "- {benchmark: split-targe, method: er, buffer: 16, protocol: class-il, "
    Path("best.yaml").write_text(best + "hyperparameters: {lr: 0.7}}")
    tuned = changed(lambda v: v["studies"]["tiny"].update(best_hyperparameters="best.yaml"))
    with pytest.raises(UserError, match="'split-targe' in best.yaml .did you mean 'split-target'"):
        plans.write(tuned, "tiny")
    best = best.replace("targe,", "target,").replace("16", "99")
    Path("best.yaml").write_text(best + "hyperparameters: {lr: 0.7}}")
    with pytest.raises(UserError, match="best.yaml has none of its cells"):
        plans.write(tuned, "tiny")


# Others at work in the same folder


def test_plans_are_written_where_locks_are_of_a_range_as_nfs_has_them(params, monkeypatch):
    monkeypatch.setattr("fcntl.flock", fcntl.lockf)  # takes no shared lock of what is not readable
    plans.write(params, "tiny")
    assert RUN_PLAN.exists()


def test_two_at_once_work_by_the_same_plans_and_no_other(params, changed, twf):
    """A lock is of an open file, so that one that this process holds stands for another's."""
    write_params(params)
    held = plans.write(params, "tiny")
    plans.write(changed(lambda v: v.update(gpu_slots=3)), "tiny")  # which decides no result
    assert plans.settings()[0] == 3
    with pytest.raises(UserError, match=f"other parameters, by the plan of {RUN_PLAN}"):
        plans.write(changed(lr(0.07)), "tiny")
    write_params(changed(lr(0.07)))
    assert "wait for it" in mistake(twf(f"run tiny {RUN}"))  # by hand
    assert read_plan(RUN_PLAN)["parameters"]["hyperparameters"]["lr"] == 0.05
    plans.write(changed(lambda v: v["studies"].update(other=v["studies"]["tiny"])), "other")
    del held
    plans.write(changed(lr(0.07)), "tiny")
    assert read_plan(RUN_PLAN)["parameters"]["hyperparameters"]["lr"] == 0.07
