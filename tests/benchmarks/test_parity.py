"""What is compared where the published code trains beside ours."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from benchmarks import parity
from support import PROJECT

from twf.data.store import Dataset
from twf.errors import UserError
from twf.study import reading

PARAMS = reading.load(PROJECT / "params.yaml")


def test_a_subset_has_equally_many_images_of_each_class_and_their_labels():
    labels = torch.tensor([1, 0, 2, 1, 0, 2, 1])
    images = (labels * 10).to(torch.uint8)[:, None, None, None].expand(-1, 2, 2, 3)
    data = Dataset(["a", "b", "c"], images, labels, images, labels, "", "")
    some = parity.subset(data, train=2, test=1)
    assert some.train_labels.bincount().tolist() == [2, 2, 2]
    assert some.test_labels.bincount().tolist() == [1, 1, 1]
    assert torch.equal(some.train_images[:, 0, 0, 0].long(), some.train_labels * 10)


def test_the_table_gives_the_difference_of_means_with_welchs_interval():
    def row(code: str, value: float) -> parity.Row:
        return {"code": code, "method": "er", "class-il": [value, value + 2], "task-il": [value]}

    rows = [row("ours", v) for v in (60.0, 62.0)] + [row("published", v) for v in (59.0, 61.0)]
    (line,) = parity.tables(rows).splitlines()[2:]
    # Student's with two degrees of freedom, 4.30 * 1.41
    assert line == "| er | 2 | +1.00 (-5.08 to +7.08) | +1.00 (-5.08 to +7.08) |"


def test_the_tables_in_the_documentation_are_those_of_the_runs_in_git():
    runs = (PROJECT / parity.RESULTS).read_text().splitlines()
    page = (PROJECT / "docs/fidelity.md").read_text(encoding="utf-8")
    for table in parity.tables([json.loads(run) for run in runs]).split("\n\n"):
        assert table.strip() in page


def test_a_row_of_the_ablation_is_its_method_with_other_weights_and_held_beside_it():
    whole, cl = (
        parity.run_of(PARAMS, name, "cifar100-w16", epochs=4, buffer=200)
        for name in ("twf", "twf.cl")
    )
    without = {"lambda_fp": 0.0, "lambda_fp_replay": 0.0, "lambda_diversity": 0.0}
    assert (cl.epochs, cl.network.width, cl.precision, cl.buffer) == (4, 16, "fp32", 200)
    assert cl == whole.model_copy(
        update={"hyperparameters": whole.hyperparameters.changed(without)}
    )
    with pytest.raises(UserError, match="fp-aux"):
        parity.run_of(PARAMS, "twf.none", "cifar100-w16", epochs=4, buffer=200)
    rows = [
        {"code": code, "method": method, "seed": seed, "class-il": [value], "task-il": [value]}
        for code, below in (("published", 1.0), ("ours", 3.0))
        for method, level in (("twf", 70.0), ("twf.cl", 70.0 - below))
        for seed, value in enumerate((level, level + 20))
    ]
    text = "-1.00 (-1.00 to -1.00)"  # of each seed, far apart as they are
    assert f"| twf.cl | published | 2 | {text} | {text} |" in parity.tables(rows)


def test_runs_of_both_codes_are_kept_and_not_made_again(monkeypatch, tmp_path, capsys):
    tried = []

    def ours(run, *_) -> parity.Row:
        tried.append((run.method, run.seed))
        return {"class-il": [50.0 + run.seed], "task-il": [60.0 + run.seed]}

    nothing = Dataset([], *[torch.zeros(0)] * 4, "", "")
    monkeypatch.setattr(Dataset, "tensors", {}, raising=False)  # of a checkpoint
    for module, name in ((parity.store, "load"), (parity, "subset"), (parity.checkpoints, "load")):
        monkeypatch.setattr(module, name, lambda *_: nothing)
    monkeypatch.setattr(parity, "ours", ours)
    monkeypatch.setattr(parity, "theirs", lambda checkout, *words: ours(*words))
    monkeypatch.setattr(parity, "RESULTS", tmp_path / "parity.jsonl")
    monkeypatch.setattr(parity, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    for methods in (["er"], ["er", "lwf"]):
        parity.main(tmp_path, "cifar100-w16", method=methods, seeds=2)
    assert tried == [(name, seed) for name in ("er", "lwf") for seed in (0, 0, 1, 1)]
    assert "| lwf | 2 | +0.00 (" in capsys.readouterr().out
