"""What is compared where the published code trains beside ours."""

import json

from benchmarks import parity
from support import PROJECT


def test_the_table_gives_welchs_interval_between_codes_and_pairs_of_seeds_within_one():
    def row(code: str, seed: int, value: float, method: str = "er") -> parity.Row:
        accuracies = {"class-il": [value, value + 2], "task-il": [value]}
        return {"code": code, "method": method, "seed": seed} | accuracies

    rows = [row("ours", i, value) for i, value in enumerate((60.0, 62.0))]
    rows += [row("published", i, value) for i, value in enumerate((59.0, 61.0))]
    (line,) = parity.tables(rows).splitlines()[2:]
    # Student's with two degrees of freedom, 4.30 * 1.41
    assert line == "| er | 2 | +1.00 (-5.08 to +7.08) | +1.00 (-5.08 to +7.08) |"
    pairs = [row("ours", i, value, "twf") for i, value in enumerate((70.0, 90.0))]
    pairs += [row("ours", i, value, "twf.cl") for i, value in enumerate((69.0, 89.0))]
    text = "-1.00 (-1.00 to -1.00)"  # of each seed, far apart as they are
    assert f"| twf.cl | ours | 2 | {text} | {text} |" in parity.tables(pairs)


def test_the_tables_in_the_documentation_are_those_of_the_runs_in_git():
    runs = (PROJECT / parity.RESULTS).read_text().splitlines()
    page = (PROJECT / "docs/fidelity.md").read_text(encoding="utf-8")
    for table in parity.tables([json.loads(run) for run in runs]).split("\n\n"):
        assert table.strip() in page
