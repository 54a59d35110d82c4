"""What of the machine the pipeline needs to know."""

from __future__ import annotations

import pytest

from twf import machine
from twf.errors import UserError


@pytest.mark.parametrize("copy", [".dvc/tmp/exps/tmpab12", ".dvc/tmp/exps/standalone/tmpab12"])
def test_a_copy_that_dvc_made_is_refused(tmp_path, monkeypatch, copy):
    machine.refuse_copies_by_dvc()  # not the project itself
    (tmp_path / copy).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / copy)
    with pytest.raises(UserError, match="leave --temp and --queue away"):
        machine.refuse_copies_by_dvc()
