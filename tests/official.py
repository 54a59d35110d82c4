"""Small archives in the layouts of the official ones, from given arrays; order and fingerprint.

`arrays` are as in a user's NumPy archive: `x_train`, `x_test` uint8 `[N, side, side, 3]`,
`y_train`, `y_test` int64 `[N]`, and `class_names`. `write_archives("cifar10", folder, arrays)` puts
files of the official names into `folder`, and `LAYOUTS["cifar10"](folder, arrays)` what is in them.

JPEG keeps images of `blocks` to the bit, as nothing varies inside its blocks of 8 x 8 pixels.
"""

import hashlib
import io
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from scipy.io import savemat

Arrays = dict[str, np.ndarray]

CLASSES = {"cifar10": 10, "cifar100": 100, "svhn": 10, "tiny-imagenet": 4, "cub200": 3}


def blocks(count: int, side: int, seed: int) -> np.ndarray:
    """Images uint8 `[count, side, side, 3]` of 8 x 8 pixels of one colour."""
    generator = np.random.default_rng(seed)
    colours = generator.integers(0, 256, (count, side // 8, side // 8, 3), dtype=np.uint8)
    return colours.repeat(8, axis=1).repeat(8, axis=2)


def names_of(name: str) -> list[str]:
    """Class names of the official kind, in the official order, for `CLASSES[name]` classes."""
    return {
        "cifar10": [f"animal {chr(97 + i)}" for i in range(10)],
        "cifar100": [f"thing_{i:02}" for i in range(100)],
        "svhn": [str(i) for i in range(10)],
        "tiny-imagenet": ["n01443537", "n01629819", "n02124075", "n04067472"],
        "cub200": ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"],
    }[name]


def some_arrays(name: str, side: int = 32) -> Arrays:
    """Six training and two test images of each class, all different, in no order."""
    classes = CLASSES[name]
    order = np.random.default_rng(1).permutation(6 * classes)
    return {
        "x_train": blocks(6 * classes, side, seed=2),
        "y_train": np.arange(6 * classes)[order] % classes,
        "x_test": blocks(2 * classes, side, seed=3),
        "y_test": np.arange(2 * classes) % classes,
        "class_names": np.array(names_of(name)),
    }


def write_archives(name: str, folder: Path, arrays: Arrays) -> list[Path]:
    """The archives of `arrays` as the official ones of `name`; gives their paths."""
    if name == "svhn":  # which is not packed
        LAYOUTS[name](folder, arrays)
        return sorted(folder.glob("*.mat"))
    with tempfile.TemporaryDirectory() as tree:
        LAYOUTS[name](Path(tree), arrays)
        kind, file = FILES[name]
        packed = Path(shutil.make_archive(str(folder / name), kind, tree))
    return [packed.rename(folder / file)]


FILES = {  # how it is packed, and its official name
    "cifar10": ("gztar", "cifar-10-python.tar.gz"),
    "cifar100": ("gztar", "cifar-100-python.tar.gz"),
    "tiny-imagenet": ("zip", "tiny-imagenet-200.zip"),
    "cub200": ("gztar", "CUB_200_2011.tgz"),
}


def write_folders(folder: Path, arrays: Arrays, test: str = "test") -> None:
    """A folder per class, `train/CLASS/*.png` and `test/CLASS/*.png`."""
    for split, place in (("train", "train"), ("test", test)):
        pairs = zip(arrays[f"x_{split}"], arrays[f"y_{split}"], strict=True)
        for i, (image, label) in enumerate(pairs):
            file = folder / place / str(arrays["class_names"][label]) / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)


def save_jpeg(file: Path, image: np.ndarray) -> None:
    """Without conversion to luminance and colour, which would round; grey images as such."""
    file.parent.mkdir(parents=True, exist_ok=True)
    colour = {"keep_rgb": True, "subsampling": 0} if image.ndim == 3 else {}
    Image.fromarray(image).save(file, format="JPEG", quality=100, **colour)


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes what Python 2 wrote: `str` for bytes."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_bytes(self, value: bytes) -> None:
        self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes

    def save_str(self, value: str) -> None:
        self.save_bytes(value.encode("ascii"))

    dispatch[str] = save_str


def python2_pickle(value: Any) -> bytes:
    """What Python 2 and its NumPy, whose module had another name, made of a value."""
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(value)
    return stream.getvalue().replace(b"cnumpy._core.", b"cnumpy.core.")


def _batch(images: np.ndarray, rest: dict[bytes, Any]) -> bytes:
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    names = [f"image_{i}.png".encode() for i in range(len(images))]
    return python2_pickle({b"data": rows, b"filenames": names, b"batch_label": b"a batch"} | rest)


def _lay_out_cifar10(tree: Path, arrays: Arrays) -> None:
    folder = tree / "cifar-10-batches-py"
    folder.mkdir()
    parts = np.array_split(np.arange(len(arrays["x_train"])), 5)
    batches = {
        f"data_batch_{i}": (arrays["x_train"][part], arrays["y_train"][part])
        for i, part in enumerate(parts, start=1)
    } | {"test_batch": (arrays["x_test"], arrays["y_test"])}
    for name, (images, labels) in batches.items():
        (folder / name).write_bytes(_batch(images, {b"labels": labels.tolist()}))
    names = [str(name).encode() for name in arrays["class_names"]]
    meta = {b"label_names": names, b"num_cases_per_batch": 10000, b"num_vis": 3072}
    (folder / "batches.meta").write_bytes(python2_pickle(meta))


def _lay_out_cifar100(tree: Path, arrays: Arrays) -> None:
    folder = tree / "cifar-100-python"
    folder.mkdir()
    for split in ("train", "test"):
        fine = arrays[f"y_{split}"]
        labels = {b"fine_labels": fine.tolist(), b"coarse_labels": (fine // 5).tolist()}
        (folder / split).write_bytes(_batch(arrays[f"x_{split}"], labels))
    fine_names = [str(name).encode() for name in arrays["class_names"]]
    coarse_names = [f"group_{i}".encode() for i in range(20)]
    meta = {b"fine_label_names": fine_names, b"coarse_label_names": coarse_names}
    (folder / "meta").write_bytes(python2_pickle(meta))


def _lay_out_svhn(tree: Path, arrays: Arrays) -> None:
    for split in ("train", "test"):
        labels = arrays[f"y_{split}"].astype(np.uint8)[:, None]
        content = {
            "X": arrays[f"x_{split}"].transpose(1, 2, 3, 0),
            "y": np.where(labels == 0, np.uint8(10), labels),
        }
        savemat(tree / f"{split}_32x32.mat", content, do_compression=True)


def _lay_out_tiny_imagenet(tree: Path, arrays: Arrays) -> None:
    root = tree / "tiny-imagenet-200"
    names = arrays["class_names"].tolist()
    (root / "test" / "images").mkdir(parents=True)
    (root / "wnids.txt").write_text("\n".join(reversed(names)))  # the official one is not sorted
    (root / "words.txt").write_text("".join(f"{name}\tsome words\n" for name in names))
    for i, (image, label) in enumerate(zip(arrays["x_train"], arrays["y_train"], strict=True)):
        folder = root / "train" / names[label]
        save_jpeg(folder / "images" / f"{names[label]}_{i}.JPEG", image)
        with (folder / f"{names[label]}_boxes.txt").open("a") as boxes:
            boxes.write(f"{names[label]}_{i}.JPEG\t0\t0\t63\t63\n")
    lines = []
    for i, (image, label) in enumerate(zip(arrays["x_test"], arrays["y_test"], strict=True)):
        save_jpeg(root / "val" / "images" / f"val_{i}.JPEG", image)
        lines.append(f"val_{i}.JPEG\t{names[label]}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))


def _lay_out_cub200(tree: Path, arrays: Arrays) -> None:
    root = tree / "CUB_200_2011"
    names = arrays["class_names"].tolist()
    root.mkdir()
    (tree / "attributes.txt").write_text("1 has_bill_shape::curved_(up_or_down)\n")
    images = [*arrays["x_train"], *arrays["x_test"]]
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    tables: dict[str, list[str]] = {"images": [], "image_class_labels": [], "train_test_split": []}
    # the official identifiers go through the classes one by one, training and test mixed
    for identifier, i in enumerate(np.argsort(labels, kind="stable").tolist(), start=1):
        file = f"{names[labels[i]]}/bird_{identifier:04}.jpg"
        save_jpeg(root / "images" / file, images[i])
        tables["images"].append(f"{identifier} {file}")
        tables["image_class_labels"].append(f"{identifier} {labels[i] + 1}")
        tables["train_test_split"].append(f"{identifier} {int(i < len(arrays['x_train']))}")
    tables["classes"] = [f"{number} {name}" for number, name in enumerate(names, start=1)]
    for table, lines in tables.items():
        (root / f"{table}.txt").write_text("".join(f"{line}\n" for line in lines))


LAYOUTS: dict[str, Callable[[Path, Arrays], None]] = {  # they write what a reader reads
    "cifar10": _lay_out_cifar10,
    "cifar100": _lay_out_cifar100,
    "svhn": _lay_out_svhn,
    "tiny-imagenet": _lay_out_tiny_imagenet,
    "cub200": _lay_out_cub200,
}


# The order and the fingerprint of a labelled image set, slow and obvious


def digest(image: np.ndarray, label: int) -> bytes:
    """The SHA-256 of the label's two little-endian bytes and the pixels, row after row."""
    content = [label % 256, label // 256]
    for row in image.tolist():
        for pixel in row:
            content += pixel
    return hashlib.sha256(bytes(content)).digest()


def fingerprint(images: np.ndarray, labels: np.ndarray) -> str:
    digests = [digest(i, label) for i, label in zip(images, labels.tolist(), strict=True)]
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def in_order(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as a prepared data set has them: sorted by digest."""
    pairs = sorted(zip(images, labels.tolist(), strict=True), key=lambda pair: digest(*pair))
    return np.stack([image for image, _ in pairs]), np.array([label for _, label in pairs])
