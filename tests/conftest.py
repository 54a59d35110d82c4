"""What all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

PROJECT = Path(__file__).parent.parent

torch.set_num_threads(1)  # the suite runs one process per core


def golden_folders() -> list[Path]:
    """The `seed*` folders of golden numbers: ours, or those under `TWF_GOLDEN`."""
    root = Path(os.environ.get("TWF_GOLDEN", Path(__file__).parent / "golden"))
    folders = sorted(root.glob("seed*"))
    if not folders:
        raise FileNotFoundError(f"no seed*/ folder of golden numbers in {root}")
    return folders


@pytest.fixture(params=golden_folders(), ids=lambda folder: folder.name)
def golden(request: pytest.FixtureRequest):
    """`golden(name)` gives the arrays of one golden case as float64 (or integer) tensors."""

    def load(name: str) -> dict[str, torch.Tensor]:
        with np.load(request.param / f"{name}.npz") as arrays:
            return {key: torch.as_tensor(arrays[key]) for key in arrays.files}

    return load


# What golden numbers are held to, by dtype.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}


@pytest.fixture(params=list(TOLERANCE), ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def close(dtype: torch.dtype):
    """Assert that a value agrees with a golden one, to the dtype's tolerance."""

    def check(value: torch.Tensor, golden_value: torch.Tensor) -> None:
        tolerance = TOLERANCE[dtype]
        torch.testing.assert_close(
            value.detach().double(), golden_value.double(), rtol=tolerance, atol=tolerance
        )

    return check


@pytest.fixture(scope="session")
def torchvision():
    """torchvision, as a slow and obvious reference for what we batch."""
    if torch.version.cuda is None:
        # PyPI's build expects operators of its CUDA library beside a CPU build of torch
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

    return torchvision
