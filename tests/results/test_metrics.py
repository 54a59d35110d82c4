"""A study's metrics from synthetic records: what DVC reads."""

from __future__ import annotations

import json
from typing import Any

from twf.files import metrics_file
from twf.results import cells, metrics, search
from twf.results.frame import Results


def written(results: Results) -> dict[str, Any]:
    cells.write(results, results.plan.tables.values())
    if results.plan.search:
        search.write(results)
    metrics.write(results.plan, cells.of_results(results), search.read(results.plan))
    return json.loads(metrics_file("small").read_text())


def test_the_first_experiments_cells_have_their_means(make_plan, recorded):
    plan = make_plan([0, 1], methods=["finetune", "er"], buffers=[500])
    finals = {n: {"finetune": 20.0, "er": 60.0}[r.method] + r.seed for n, r in plan.runs.items()}
    assert written(recorded(plan, finals)) == {
        "split-cifar10": {"finetune": {"class-il": 20.5}, "er": {"500": {"class-il": 60.5}}}
    }


def test_a_mean_over_fewer_runs_says_how_many_are_missing(make_plan, recorded):
    plan = make_plan([0, 1, 2], methods=["joint", "er"], protocols=["class-il"], buffers=[500])
    records = {
        "split-cifar10.joint.s0": 80.0,
        "split-cifar10.er.500.s0": {"status": "diverged"},
        "split-cifar10.er.500.s1": {"digest": "of other parameters"},
    }
    runs = recorded(plan, records)
    counts = {"finished": 1, "diverged": 1, "stale": 1, "missing": 3}
    assert runs.runs["status"].value_counts().to_dict() == counts
    found = written(runs)["split-cifar10"]
    assert found == {"joint": {"class-il": 80.0, "missing": 2}, "er": {"500": {"missing": 3}}}


def test_variants_have_a_level_of_their_own(make_plan, recorded):
    weak = {"title": "weak", "hyperparameters": {"alpha": 0.0}}
    one = {"methods": ["derpp"], "protocols": ["task-il"], "buffers": [500]}
    plan = make_plan([0], **one, variants={"as-set": {"title": "as set"}, "weak": weak})
    assert written(recorded(plan))["split-cifar10"]["derpp"] == {
        "as-set": {"500": {"task-il": 80.0}},
        "weak": {"500": {"task-il": 80.0}},
    }


def test_a_search_alone_has_its_best_trial(make_plan, recorded):
    tried = {"held_out": 0.1, "grids": {"er": {"lr": [0.01, 0.1]}}}
    one = {"methods": ["er"], "protocols": ["class-il"], "buffers": [500, 5120]}
    plan = make_plan([0], **one, search=tried)
    first, second = plan.search[0].trials
    assert written(recorded(plan, {first.runs[0]: 40.0, second.runs[0]: 50.0})) == {
        "search": {"split-cifar10": {"er": {"500": {"class-il": 50.0}, "5120": {"missing": 2}}}}
    }
