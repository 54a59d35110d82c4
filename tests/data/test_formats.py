"""What readers make of a user's arrays, images and folders, and of unpacked official archives."""

import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import official
import pytest
from PIL import Image
from support import Malicious

from twf.data import formats
from twf.data.formats import read_split, resize_images
from twf.errors import UserError

# A user's NumPy archive

ARRAYS: dict[str, Any] = {
    "x_train": np.random.default_rng(0).integers(0, 256, (9, 16, 16, 3), dtype=np.uint8),
    "y_train": np.arange(9) % 3,
    "x_test": np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8),
    "y_test": np.arange(3),
}


@pytest.mark.parametrize(
    ("write", "kind", "names"),
    [(np.savez, np.uint8, ["ape", "bee", "cat"]), (np.savez_compressed, np.int64, None)],
)
def test_an_archive_is_read(tmp_path, kind, write, names):
    arrays = ARRAYS | {"y_train": ARRAYS["y_train"].astype(kind)[:, None]}
    write(tmp_path / "mine.npz", **arrays, **({"class_names": names} if names else {}))
    data = formats.read_npz(tmp_path / "mine.npz", 3)
    for name, split in data.splits.items():
        assert np.array_equal(split.images, ARRAYS[f"x_{name}"])
        assert np.array_equal(split.labels, ARRAYS[f"y_{name}"])
        assert split.labels.dtype == np.int64
    assert data.classes == (names or ["0", "1", "2"])


def bomb(file: Path) -> None:
    """Its header claims more than any memory holds."""
    with zipfile.ZipFile(file, "w") as packed:
        for name, array in ARRAYS.items():
            with packed.open(f"{name}.npy", "w") as member:
                header = {"descr": array.dtype.str, "fortran_order": False}
                shape = (10**15, *array.shape[1:])
                np.lib.format.write_array_header_1_0(member, header | {"shape": shape})


# What is named, and the changes to a good archive; or what else is written.
WRONG: list[tuple[str, dict[str, Any] | Callable[[Path], object]]] = [
    ("x_test is not a file", {"x_test": None}),
    (r"x_train as float32 \[9, 16, 16, 3\]", {"x_train": np.zeros((9, 16, 16, 3), np.float32)}),
    (r"x_test as uint8 \[3, 16, 16\]", {"x_test": np.zeros((3, 16, 16), np.uint8)}),
    (r"y_train as int64 \[8\]", {"y_train": np.arange(8) % 3}),
    (r"y_test as int64 \[3, 2\]", {"y_test": np.arange(6).reshape(3, 2) % 3}),
    (r"y_test as int64 \[1, 3\]", {"y_test": np.arange(3)[None]}),
    ("label 3 in y_test", {"y_test": np.array([0, 1, 3])}),
    ("label -1 in y_train", {"y_train": np.arange(9) % 3 - 1}),
    ("class_names", {"class_names": np.array(["ape", "bee"])}),
    ("allow_pickle=False", {"class_names": np.array(["a", "b", None], object)}),
    ("cannot be read", lambda file: np.save(file.open("wb"), ARRAYS["x_train"])),
    ("cannot be read", bomb),
]


@pytest.mark.parametrize(("named", "written"), WRONG)
def test_a_wrong_archive_is_named_with_what_is_needed(tmp_path, named, written):
    file = tmp_path / "mine.npz"
    if isinstance(written, dict):
        arrays = {key: array for key, array in (ARRAYS | written).items() if array is not None}
        np.savez(file, **arrays)
    else:
        written(file)
    with pytest.raises(UserError, match=rf"mine\.npz.*{named}.*x_train, y_train, x_test, y_test"):
        formats.read_npz(file, 3)


# Image files

SIDE = 16


def read(file: Path) -> np.ndarray:
    return read_split({file: 0}, SIDE).images[0]


def picture(mode: str) -> Image.Image:
    """A picture of a mode, opaque and without symmetry."""
    grey = Image.fromarray((np.arange(SIDE**2) % 251).astype(np.uint8).reshape(SIDE, SIDE))
    if mode in ("I;16", "I", "F"):
        return Image.fromarray(np.asarray(grey).astype({"F": "f4", "I": "i4"}.get(mode, "u2")))
    return grey.convert("RGBA").convert("PA") if mode == "PA" else grey.convert(mode)


def save(image: Image.Image, file: Path, **options: object) -> Path:
    image.save(file, **({"lossless": True} if file.suffix == ".webp" else {}), **options)
    return file


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *[(mode, "tiff") for mode in ("1", "L", "P", "RGB", "LA", "RGBA", "RGBX", "PA", "CMYK")],
        *[("RGB", "png"), ("RGB", "webp"), ("P", "gif"), ("RGB", "bmp"), ("RGB", "ppm")],
    ],
)
def test_an_image_without_loss_is_the_same_in_rgb(tmp_path, mode, suffix):
    image = picture(mode)
    file = save(image, tmp_path / f"a.{suffix}")
    assert np.array_equal(read(file), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("suffix", ["png", "webp", "tiff"])
def test_a_photo_is_turned_as_a_viewer_shows_it(tmp_path, suffix):
    """Against the eight orientations of the EXIF standard, written out."""
    stored = np.zeros((SIDE, 2 * SIDE, 3), np.uint8)
    stored[: SIDE // 2, : SIDE // 2] = (255, 0, 0)
    stored[: SIDE // 2, SIDE:] = (0, 255, 0)
    turned = stored.swapaxes(0, 1)
    halves = stored, stored[:, ::-1], stored[::-1, ::-1], stored[::-1]
    quarters = turned, np.rot90(stored, -1), turned[::-1, ::-1], np.rot90(stored)
    for orientation, shown in enumerate((*halves, *quarters), start=1):
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = save(Image.fromarray(stored), tmp_path / f"a.{suffix}", exif=exif)
        assert np.array_equal(read(file), resize_images(shown[None], SIDE)[0]), orientation


def test_sixteen_bits_a_channel_are_read_as_eight(tmp_path):
    levels = (np.arange(SIDE * SIDE * 3) % 256).reshape(SIDE, SIDE, 3)
    deep = (256 * levels + (255 - levels)).astype(">u2").tobytes()  # the lower eight say otherwise
    (tmp_path / "deep.ppm").write_bytes(b"P6 %d %d 65535\n" % (SIDE, SIDE) + deep)
    assert np.abs(read(tmp_path / "deep.ppm") - levels).max() <= 1


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_what_is_not_a_picture_of_8_bits_is_refused_by_name(tmp_path, monkeypatch, mode):
    with pytest.raises(UserError, match=rf"odd\.tiff .*mode {mode}"):
        read(save(picture(mode), tmp_path / "odd.tiff"))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SIDE)  # of which Pillow refuses the double
    with pytest.raises(UserError, match=r"bomb\.png .*decompression bomb"):
        read(save(picture("RGB"), tmp_path / "bomb.png"))


# Class folders


BROKEN: dict[str, Callable[[Path], object]] = {  # what is named
    "train/CLASS": lambda path: (path / "train").rename(path / "training"),
    "test/CLASS.*train": lambda path: shutil.rmtree(path / "test"),
    "same classes: extra": lambda path: (path / "test" / "extra").mkdir(),
    r"notes\.txt cannot be read as an image": lambda path: (
        next(path.glob("train/*")) / "notes.txt"
    ).write_text("no image"),
}


@pytest.mark.parametrize("named", BROKEN)
def test_folders_that_do_not_fit_are_named(tmp_path, named):
    official.write_folders(tmp_path, official.some_arrays("cub200"))
    BROKEN[named](tmp_path)
    with pytest.raises(UserError, match=named):
        formats.folders(tmp_path, 32)


# Official archives, unpacked


@pytest.mark.parametrize("name", official.NAMES)
def test_images_of_another_size_are_resized_as_torchvision_does(tmp_path, torchvision, name):
    side = 64 if name in ("tiny-imagenet", "cub200") else 32  # the others have one size only
    arrays = official.some_arrays(name, side)
    official.LAYOUTS[name](tmp_path, arrays)
    data = formats.READERS["cifar" if "cifar" in name else name](tmp_path, 24)
    assert data.classes == official.NAMES[name]
    resize = torchvision.transforms.Resize((24, 24))
    for split, made in data.splits.items():
        small = np.stack([resize(Image.fromarray(image)) for image in arrays[f"x_{split}"]])
        expected = official.in_order(small, arrays[f"y_{split}"])
        actual = official.in_order(made.images, made.labels)
        assert all(map(np.array_equal, actual, expected))


@pytest.mark.parametrize("position", ["batch", "label", "key"])
@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path, position, protocol):
    official.LAYOUTS["cifar10"](tmp_path, official.some_arrays("cifar10"))
    trace = tmp_path / "trace"
    value: Any = Malicious(trace)
    value = {"batch": value, "label": {"labels": [value]}, "key": {(value,): 0}}[position]
    content = pickle.dumps(value, protocol)
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").write_bytes(content)
    with pytest.raises(UserError, match=r"data_batch_3 .*io\.open"):
        formats.READERS["cifar"](tmp_path, 32)
    assert not trace.exists()
    pickle.loads(content)
    assert trace.exists()  # so that the test above speaks of a real danger
