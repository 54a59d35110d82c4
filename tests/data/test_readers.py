"""The readers of the official archives: what was put in comes out, and what is broken is named."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import official
import pytest
from hostile import Malicious
from PIL import Image

from twf.data.formats import READERS
from twf.data.images import BrokenFileError
from twf.data.store import DataArrays

Unpacked = Callable[..., Path]


@pytest.fixture
def unpacked(tmp_path: Path) -> Unpacked:
    """`unpacked(name, arrays)`: the folder of what is in the archive of these arrays."""

    def make(name: str, arrays: official.Arrays | None = None) -> Path:
        official.LAYOUTS[name](tmp_path, arrays or official.some_arrays(name))
        return tmp_path

    return make


def assert_same(data: DataArrays, expected: official.Arrays) -> None:
    """The same labelled images in each split, in whatever order, and the same classes."""
    assert data.classes == expected["class_names"].tolist()
    for name, split in data.splits.items():
        assert split.images.dtype == np.uint8 and split.labels.dtype == np.int64
        images, labels = official.in_order(split.images, split.labels)
        wanted = official.in_order(expected[f"x_{name}"], expected[f"y_{name}"])
        assert np.array_equal(images, wanted[0]) and np.array_equal(labels, wanted[1])


@pytest.mark.parametrize("name", official.CLASSES)
def test_images_of_another_size_are_resized_as_torchvision_does(unpacked, torchvision, name):
    side = 64 if name in ("tiny-imagenet", "cub200") else 32  # the others have one size only
    arrays = official.some_arrays(name, side)
    folder = unpacked(name, arrays)
    resize = torchvision.transforms.Resize((24, 24))
    for key in ("x_train", "x_test"):
        small = [np.asarray(resize(Image.fromarray(image))) for image in arrays[key]]
        arrays[key] = np.stack(small)
    assert_same(READERS["cifar" if "cifar" in name else name](folder, 24), arrays)


@pytest.mark.parametrize("position", ["batch", "label", "key"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    unpacked, tmp_path, position, protocol
):
    folder, trace = unpacked("cifar10"), tmp_path / "trace"
    value: Any = Malicious(trace)
    value = {"batch": value, "label": {"labels": [value]}, "key": {(value,): 0}}[position]
    content = pickle.dumps(value, protocol)
    (folder / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(BrokenFileError, match=r"data_batch_3 .*io\.open"):
        READERS["cifar"](folder, 32)
    assert not trace.exists()
    pickle.loads(content)
    assert trace.exists()  # so that the test above speaks of a real danger
