"""How long a study takes, by what recorded runs took."""

from twf import files
from twf.forecast import lines
from twf.study import expand


def test_what_remains_is_summed_and_what_nothing_measured_is_named(tiny_inputs) -> None:
    runs = list(expand(tiny_inputs, "tiny").runs.values())
    er = [run for run in runs if run.method == "er"]
    files.COSTS.parent.mkdir(exist_ok=True)
    files.COSTS.write_text(
        "benchmark,method,width,device,runs,seconds\n"
        f"split-target,er,{er[0].network.width},A,1,3600.0\nsplit-target,er,99,A,1,9.0\n"
    )
    first, of_a, missing, _ = lines(runs)
    assert first.startswith(f"{len(runs)} runs remain")
    hours = float(sum(run.epochs for run in er))
    assert of_a.strip() == f"{hours} hours for {len(er)} of them on A"
    others = ", ".join(sorted({run.method for run in runs} - {"er"}))
    assert missing.strip() == f"not measured: split-target, width {er[0].network.width}: {others}"
