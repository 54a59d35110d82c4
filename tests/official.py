"""Small archives in the layouts of the official ones, from given arrays; order and fingerprint.

`arrays` are as in a user's NumPy archive: `x_train`, `x_test` uint8 `[N, side, side, 3]`,
`y_train`, `y_test` int64 `[N]`, and `class_names`. `write_archives("cifar10", folder, arrays)` puts
files of the official names into `folder`, and `LAYOUTS["cifar10"](folder, arrays)` what is in them.
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
import yaml
from PIL import Image
from scipy.io import savemat

from twf.data import registry

Arrays = dict[str, np.ndarray]

NAMES = {  # of classes, of the official kind and in the official order
    "cifar10": [f"animal {chr(97 + i)}" for i in range(10)],
    "cifar100": [f"thing_{i:02}" for i in range(100)],
    "svhn": [str(i) for i in range(10)],
    "tiny-imagenet": ["n01443537", "n01629819", "n02124075", "n04067472"],
    "cub200": ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"],
}
FILES = {  # how it is packed, and its official name
    "cifar10": ("gztar", "cifar-10-python.tar.gz"),
    "cifar100": ("gztar", "cifar-100-python.tar.gz"),
    "tiny-imagenet": ("zip", "tiny-imagenet-200.zip"),
    "cub200": ("gztar", "CUB_200_2011.tgz"),
}


def some_arrays(name: str, side: int = 32) -> Arrays:
    """Six training and two test images of each class, all different, in no order.

    JPEG keeps them to the bit, as nothing varies inside its blocks of 8 x 8 pixels.
    """
    generator, classes = np.random.default_rng(1), len(NAMES[name])
    arrays = {"class_names": np.array(NAMES[name])}
    for split, each in {"train": 6, "test": 2}.items():
        labels = generator.permutation(np.arange(each * classes) % classes)
        colours = generator.integers(0, 256, (len(labels), side // 8, side // 8, 3), dtype=np.uint8)
        images = colours.repeat(8, axis=1).repeat(8, axis=2)
        arrays |= {f"x_{split}": images, f"y_{split}": labels}
    return arrays


def write_archives(
    name: str, folder: Path, arrays: Arrays, change: Callable[[Path], None] = lambda tree: None
) -> list[Path]:
    """The archives of `arrays` as the official ones of `name`, where `change` leaves them so."""
    if name == "svhn":  # which is not packed
        LAYOUTS[name](folder, arrays)
        return sorted(folder.glob("*.mat"))
    with tempfile.TemporaryDirectory() as tree:
        LAYOUTS[name](Path(tree), arrays)
        change(Path(tree))
        kind, file = FILES[name]
        packed = Path(shutil.make_archive(str(folder / name), kind, tree))
    return [packed.rename(folder / file)]


def register(patch: Any, name: str, archives: list[Path], like: str = "", **changes: Any) -> None:
    """From now on, the registry has `name` alone, with these files, from where they lie."""
    told = {}
    for path in archives:
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        told[path.name] = {"checksum": f"sha256:{sha256}", "addresses": [path.absolute().as_uri()]}
    entry = registry.entry(like or name).model_dump() | {"files": told} | changes
    own = archives[0].absolute().with_name("own.yaml")
    own.write_text(yaml.safe_dump({name: entry}))
    patch.setenv("TWF_REGISTRY", str(own))


def write_folders(folder: Path, arrays: Arrays, test: str = "test") -> None:
    """A folder per class, `train/CLASS/*.png` and `test/CLASS/*.png`."""
    for split, place in (("train", "train"), ("test", test)):
        pairs = zip(arrays[f"x_{split}"], arrays[f"y_{split}"], strict=True)
        for i, (image, label) in enumerate(pairs):
            file = folder / place / str(arrays["class_names"][label]) / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)


def save_jpeg(file: Path, image: np.ndarray) -> None:
    """Without conversion to luminance and colour, which would round."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(file, format="JPEG", quality=100, keep_rgb=True, subsampling=0)


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes what Python 2 wrote: `str` for bytes."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_text(self, value: str | bytes) -> None:
        content = value if isinstance(value, bytes) else value.encode("ascii")
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_text


def _pickle(file: Path, values: dict[bytes, Any]) -> None:
    """As Python 2 and its NumPy, whose module had another name, made of them."""
    stream = io.BytesIO()
    Python2Pickler(stream, protocol=2).dump(values)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(stream.getvalue().replace(b"cnumpy._core.", b"cnumpy.core."))


def _batch(file: Path, images: np.ndarray, labels: dict[bytes, Any]) -> None:
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    _pickle(file, {b"data": rows, b"batch_label": b"a batch"} | labels)


def _lay_out_cifar10(tree: Path, arrays: Arrays) -> None:
    folder = tree / "cifar-10-batches-py"
    parts = np.array_split(np.arange(len(arrays["x_train"])), 5)
    for i, part in enumerate(parts, start=1):
        labels = {b"labels": arrays["y_train"][part].tolist()}
        _batch(folder / f"data_batch_{i}", arrays["x_train"][part], labels)
    _batch(folder / "test_batch", arrays["x_test"], {b"labels": arrays["y_test"].tolist()})
    names = [name.encode() for name in arrays["class_names"].tolist()]
    _pickle(folder / "batches.meta", {b"label_names": names})


def _lay_out_cifar100(tree: Path, arrays: Arrays) -> None:
    folder = tree / "cifar-100-python"
    for split in ("train", "test"):
        fine = arrays[f"y_{split}"]
        labels = {b"fine_labels": fine.tolist(), b"coarse_labels": (fine // 5).tolist()}
        _batch(folder / split, arrays[f"x_{split}"], labels)
    names = [name.encode() for name in arrays["class_names"].tolist()]
    _pickle(folder / "meta", {b"fine_label_names": names, b"coarse_label_names": [b"group"] * 20})


def _lay_out_svhn(tree: Path, arrays: Arrays) -> None:
    for split in ("train", "test"):
        labels = arrays[f"y_{split}"].astype(np.uint8)[:, None]
        images = arrays[f"x_{split}"].transpose(1, 2, 3, 0)
        content = {"X": images, "y": np.where(labels == 0, np.uint8(10), labels)}
        savemat(tree / f"{split}_32x32.mat", content, do_compression=True)


def _lay_out_tiny_imagenet(tree: Path, arrays: Arrays) -> None:
    root, names = tree / "tiny-imagenet-200", arrays["class_names"].tolist()
    for i, (image, label) in enumerate(zip(arrays["x_train"], arrays["y_train"], strict=True)):
        save_jpeg(root / f"train/{names[label]}/images/{names[label]}_{i}.JPEG", image)
    lines = []
    for i, (image, label) in enumerate(zip(arrays["x_test"], arrays["y_test"], strict=True)):
        save_jpeg(root / f"val/images/val_{i}.JPEG", image)
        lines.append(f"val_{i}.JPEG\t{names[label]}\t0\t32\t44\t62\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    (root / "wnids.txt").write_text("\n".join(reversed(names)))  # the official one is not sorted


def _lay_out_cub200(tree: Path, arrays: Arrays) -> None:
    root, names = tree / "CUB_200_2011", arrays["class_names"].tolist()
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
    content = [label % 256, label // 256, *np.ravel(image).tolist()]
    return hashlib.sha256(bytes(content)).digest()


def fingerprint(images: np.ndarray, labels: np.ndarray) -> str:
    digests = [digest(i, label) for i, label in zip(images, labels.tolist(), strict=True)]
    return hashlib.sha256(b"".join(sorted(digests))).hexdigest()


def in_order(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as a prepared data set has them: sorted by digest."""
    pairs = sorted(zip(images, labels.tolist(), strict=True), key=lambda pair: digest(*pair))
    return np.stack([image for image, _ in pairs]), np.array([label for _, label in pairs])
