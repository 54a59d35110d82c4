"""What `twf doctor` says of Snakemake, DVC, tracking and states, and of all together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from twf import files
from twf.study.params import Params
from twf.upkeep import doctor
from twf.upkeep.doctor import engines
from twf.upkeep.doctor.check import Check


def test_a_lock_of_snakemake_is_told(only, tiny_project) -> None:
    assert only(engines.snakemake(), "snakemake").state == "ok"
    lock = Path(".snakemake/locks/0.output.lock")
    lock.parent.mkdir(parents=True)
    lock.touch()
    check = only(engines.snakemake(), "snakemake")
    assert check.state == "warning" and "snakemake --unlock" in check.remedy


@pytest.fixture
def configure(tiny_project: Path) -> Callable[[str], None]:
    """`configure(text)`: a project of DVC's with this configuration."""

    def write(text: str) -> None:
        Path(".dvc").mkdir(exist_ok=True)
        Path(".dvc/config").write_text(f"[core]\n    no_scm = true\n{text}")

    return write


def test_dvcs_links_cache_and_remote_are_looked_at(only, configure, tmp_path) -> None:
    configure("")
    check = only(engines.dvc(), "dvc cache")
    assert (check.state, check.remedy) == ("wrong", "dvc config cache.type copy")
    configure("[cache]\n    type = hardlink\n")
    cache, remote = engines.dvc()
    assert cache.state == "wrong" and "hardlink" in cache.said
    assert remote.state == "warning" and "dvc remote add" in remote.remedy
    Path(".dvc/config.local").write_text(
        "['remote \"shared\"']\n    secret_access_key = fake-0123\n"
    )
    configure(
        f"    remote = shared\n[cache]\n    type = copy\n    dir = {tmp_path / 'elsewhere'}\n"
        "['remote \"shared\"']\n    url = s3://bucket/folder\n"
    )
    cache, remote = engines.dvc()
    assert cache.state == "ok" and "elsewhere" in cache.said
    assert remote == Check("dvc remote", "ok", "shared")
    assert "fake-0123" not in f"{cache}{remote}"
    Path(".dvc/config").write_text("[core\n")
    assert only(engines.dvc(), "dvc").state == "wrong"


def test_online_without_a_key_is_wrong(only, tiny_project, tiny_values, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tiny_project))
    for name in ("NETRC", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def check(mode: str) -> Check:
        tiny_values["tracking"] = {"mode": mode}
        return only(engines.tracking(Params.model_validate(tiny_values)), "tracking")

    assert (check("auto").state, check("auto").said) == ("ok", "auto: offline")
    assert (check("off").state, check("off").said) == ("ok", "off")
    assert check("online").state == "wrong" and "wandb login" in check("online").remedy
    monkeypatch.setenv("WANDB_API_KEY", "fake-0123")
    assert check("online") == Check("tracking", "ok", "online: online")
    monkeypatch.setenv("TWF_TRACKING", "sometimes")
    assert check("online").state == "wrong"


def test_states_of_no_study_are_told(only, tiny_project, tiny_values) -> None:
    params = Params.model_validate(tiny_values)
    assert only(engines.states(params), "states").state == "ok"
    files.state_file("dropped", "some-run").parent.mkdir(parents=True)
    check = only(engines.states(params), "states")
    assert check.state == "warning" and "states/dropped/some-run" in check.said
    assert "twf clean --kind states" in check.remedy


def test_each_check_is_a_line_and_something_wrong_is_told_by_the_result(capsys) -> None:
    well = [Check("a", "ok", "fine"), Check("b", "warning", "[x] " * 50, "do this")]
    assert doctor.show(well)
    assert not doctor.show([*well, Check("c", "wrong", "broken", "do that")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[-2].startswith("warning b          [x] [x]")
    assert lines[-2].endswith("To mend it: do this")
    assert lines[-1] == "wrong   c          broken. To mend it: do that"


def test_all_is_looked_at_and_nothing_is_changed(configure, tiny_values, tiny_project) -> None:
    configure("")
    before = contents(tiny_project)
    checks = list(doctor.examine(Params.model_validate(tiny_values), "tiny"))
    assert {check.name for check in checks} >= {"python", "folder", "disk", "clock", "states"}
    assert all(check.remedy for check in checks if check.state != "ok" and check.name != "disk")
    assert contents(tiny_project) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
