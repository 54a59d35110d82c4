"""Readers of image files, of a user's arrays and folders, and of unpacked archives by format.

The latter take the folder with an archive's content and the side in pixels that images get.
CIFAR's batches (https://www.cs.toronto.edu/~kriz/cifar.html) are pickles of Python 2, and a pickle
can run any code: these may make NumPy arrays, text and containers of these, and nothing else.
"""

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from twf.data.store import DataArrays, Images, Split
from twf.errors import UserError, few

# What is decoded. Pillow would hand Encapsulated PostScript, a program, to Ghostscript to run.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MODES = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LA", "PA", "RGBA")  # of 8 bits or fewer
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    # which has no public name, and has moved since
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
}


@contextlib.contextmanager
def reading(file: Path, kind: str) -> Iterator[None]:
    """Turn any error that is raised while a file is read into a `UserError` that names it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        problem = f"cannot be read as {kind} ({type(error).__name__}: {error})"
        raise UserError(f"{file} {problem}") from None


def read_split(labels: dict[Path, int], size: int) -> Split:
    """The labelled image files as uint8 [N, size, size, 3] and int64 [N]; grey ones become RGB.

    An image of another size is squashed by Pillow's bilinear filter, which is also what
    torchvision's `Resize((size, size))` does to a Pillow image. Its content, not its name, decides
    which of `FORMATS` a file is. Photos are turned as their EXIF orientation says. Raises
    `UserError`, also for a mode that Pillow does not turn into 8 bits a channel.
    """
    images = np.empty((len(labels), size, size, 3), dtype=np.uint8)
    for row, file in zip(images, labels, strict=True):
        with reading(file, "an image"), Image.open(file, formats=FORMATS) as image:
            if image.mode not in MODES:
                has = f"Pillow's mode {image.mode}"
                raise UserError(f"{file} has {has}: save it as RGB with 8 bits a channel")
            ImageOps.exif_transpose(image, in_place=True)
            row[...] = _resize(image.convert("RGB"), size)
    return Split(images, np.array(list(labels.values()), dtype=np.int64))


def read_classes(folders: Sequence[Path], size: int) -> Split:
    """The images in a folder for each label, at any depth, but hidden files, by `read_split`."""
    labels: dict[Path, int] = {}
    for label, folder in enumerate(folders):
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        parts = {path: path.relative_to(folder).parts for path in files}
        images = [path for path in parts if not any(part[0] == "." for part in parts[path])]
        if not images:
            raise UserError(f"{folder} has no image")
        labels |= dict.fromkeys(images, label)
    return read_split(labels, size)


def resize_images(images: Images, size: int) -> Images:
    """Images uint8 [N, H, W, 3] as [N, size, size, 3], as `read_split` does it to files."""
    if images.shape[1:3] == (size, size):
        return images
    resized = np.empty((len(images), size, size, 3), dtype=np.uint8)
    for row, image in zip(resized, images, strict=True):
        row[...] = _resize(Image.fromarray(np.ascontiguousarray(image)), size)
    return resized


def _resize(image: Image.Image, size: int) -> Images:
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def cifar(folder: Path, size: int) -> DataArrays:
    """CIFAR-10, or CIFAR-100 with its fine labels: whichever is in `folder`."""
    if (cifar10 := folder / "cifar-10-batches-py").is_dir():
        meta, prefix = cifar10 / "batches.meta", b""
        train, test = [cifar10 / f"data_batch_{i}" for i in range(1, 6)], cifar10 / "test_batch"
    else:
        cifar100 = folder / "cifar-100-python"
        meta, prefix = cifar100 / "meta", b"fine_"
        train, test = [cifar100 / "train"], cifar100 / "test"

    def split(files: list[Path]) -> Split:
        batches = [_load(file) for file in files]
        rows = np.concatenate([batch[b"data"] for batch in batches])
        images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = [np.array(batch[prefix + b"labels"], np.int64) for batch in batches]
        return Split(resize_images(images, size), np.concatenate(labels))

    names = [name.decode() for name in _load(meta)[prefix + b"label_names"]]
    return DataArrays(split(train), split([test]), names)


class _Unpickler(pickle.Unpickler):  # noqa: S301
    """Gives a pickle nothing that could run code, however it asks for it."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which could run code")
        return _ALLOWED[module, name]


def _load(file: Path) -> dict[bytes, Any]:
    """The dictionary in a batch, whose text Python 2 wrote as bytes."""
    with reading(file, "a batch"), file.open("rb") as stream:
        batch: dict[bytes, Any] = _Unpickler(stream, encoding="bytes").load()
        return batch


def svhn(folder: Path, size: int) -> DataArrays:
    """The cropped digits of http://ufldl.stanford.edu/housenumbers/; a label is its digit.

    A file has X [32, 32, 3, N] and y [N, 1], from 1 to 10, which is the digit 0.
    """
    from scipy.io import loadmat  # slow, and no other archive needs it

    def split(name: str) -> Split:
        content = loadmat(str(folder / f"{name}_32x32.mat"), variable_names=["X", "y"])
        labels = content["y"].reshape(-1).astype(np.int64) % 10
        return Split(resize_images(content["X"].transpose(3, 0, 1, 2), size), labels)

    return DataArrays(split("train"), split("test"), [str(digit) for digit in range(10)])


def tiny_imagenet(folder: Path, size: int) -> DataArrays:
    """The training images, and the validation images as the test; the archive's test has no labels.

    Classes are the WordNet identifiers in sorted order, not in the order of `wnids.txt`.
    """
    root = folder / "tiny-imagenet-200"
    classes = sorted((root / "wnids.txt").read_text(encoding="utf-8").split())
    annotations = (root / "val" / "val_annotations.txt").read_text(encoding="utf-8")
    validation = {
        root / "val" / "images" / image: classes.index(name)
        for image, name, *_ in map(str.split, annotations.splitlines())
    }
    train = read_classes([root / "train" / name / "images" for name in classes], size)
    return DataArrays(train, read_split(validation, size), classes)


def cub200(folder: Path, size: int) -> DataArrays:
    """CUB-200-2011 in the official split, squashed to a square; label 0 is the class number 1."""
    root = folder / "CUB_200_2011"

    def table(name: str) -> dict[str, str]:
        lines = (root / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        return dict(line.split() for line in lines)

    images, number, is_train = map(table, ("images", "image_class_labels", "train_test_split"))
    train, test = (
        {
            root / "images" / file: int(number[image]) - 1
            for image, file in images.items()
            if is_train[image] == wanted
        }
        for wanted in ("1", "0")
    )
    classes = list(table("classes").values())
    return DataArrays(read_split(train, size), read_split(test, size), classes)


def folders(path: Path, size: int) -> DataArrays:
    """All images of `train/CLASS/*` and `test/CLASS/*` (or `val/CLASS/*`), squashed to `size`.

    Grey ones become RGB; labels are the ranks of the sorted names. Raises `UserError`, also
    for a folder that is missing or ambiguous.
    """
    splits = _inner(path)
    tests = [name for name in splits if name in ("test", "val")]
    if "train" not in splits or len(tests) != 1:
        needed = "train/CLASS/*, and either test/CLASS/* or val/CLASS/*"
        raise UserError(f"{path} needs {needed}; its folders are: {few(splits) or 'none'}")
    train, test = path / "train", path / tests[0]
    classes = _inner(train)
    if unequal := set(classes) ^ set(_inner(test)):
        extra = few(sorted(unequal))
        raise UserError(f"{train} and {test} have not the same classes: {extra} in one only")
    return DataArrays(
        read_classes([train / name for name in classes], size),
        read_classes([test / name for name in classes], size),
        classes,
    )


def _inner(path: Path) -> list[str]:
    return sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def read_npz(file: Path, classes: int) -> DataArrays:
    """The arrays `x_train`, `x_test` uint8 [N, H, W, 3] and `y_train`, `y_test` [N], from 0.

    An optional `class_names` gives the text for each label; without it the labels are their own
    names. Raises `UserError` that names file and key, and why.
    """
    if not file.is_file():
        raise UserError(f"no {file}: put it there, or correct its name")
    try:
        with reading(file, "plain arrays"), np.load(file, allow_pickle=False) as archive:  # noqa: TID251
            train, test = (_split(file, archive, split, classes) for split in ("train", "test"))
            names = archive["class_names"] if "class_names" in archive else np.arange(classes)
            if names.shape != (classes,):
                shape = list(names.shape)
                raise UserError(f"{file} has class_names {shape}, expected [{classes}]")
            return DataArrays(train, test, [str(name) for name in names])
    except UserError as error:
        raise UserError(
            f"{error}; needed is a NumPy archive with x_train, y_train, x_test, y_test: images "
            "uint8 [N, H, W, 3], labels from 0 (docs/add-a-data-set.md)"
        ) from None


def _split(file: Path, archive: Any, split: str, classes: int) -> Split:
    images, labels = archive[f"x_{split}"], archive[f"y_{split}"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise UserError(f"{file} has x_{split} as {images.dtype} {list(images.shape)}")
    if labels.dtype.kind not in "iu" or labels.shape not in ((len(images),), (len(images), 1)):
        kind = f"{labels.dtype} {list(labels.shape)}"
        raise UserError(f"{file} has y_{split} as {kind}, expected {len(images)} integers")
    if outside := [label for label in np.unique(labels) if not 0 <= label < classes]:
        where = f"y_{split}, outside 0 to {classes - 1}"
        raise UserError(f"{file} has the label {outside[0]} in {where}")
    return Split(images, labels.reshape(-1).astype(np.int64))


# by the registry's `format`
READERS = {"cifar": cifar, "svhn": svhn, "tiny-imagenet": tiny_imagenet, "cub200": cub200}
