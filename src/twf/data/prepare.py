"""Prepared data sets, from a reader or from a user's file, checked before they are written."""

from pathlib import Path

from twf import files
from twf.data import fetch, formats, packaged, registry, store
from twf.data.formats import reading, resize_images
from twf.data.store import DataArrays, Split
from twf.errors import UserError, lookup
from twf.study import params, products


def prepare(name: str, dataset: params.Dataset, output: Path) -> None:
    """Read or draw the data set `name` of `params.yaml`, check it, and write it to `output`."""
    made_of = products.data_plan(dataset, known={})
    if dataset.reader == "archive":
        arrays = formats.read_npz(Path(dataset.file), dataset.classes)
    elif dataset.reader == "official":
        arrays = _read_archive(dataset)
    else:
        arrays = packaged.READERS[dataset.reader](dataset)
    _check_params(name, dataset, arrays)
    store.save(output, name, arrays, made_of)


def import_data(name: str, dataset: params.Dataset, path: Path) -> None:
    """Prepare the published data set `name` from a user's `.npz` or folder of class folders.

    Images of another size are squashed to the data set's, and must then be those of the official
    archive. Raises `UserError`, and leaves what was there, where they are not. Prints what was
    read and checked.
    """
    if dataset.reader != "official":
        raise UserError(f"{name} is no published data set: `twf data prepare {name}` makes it")
    size, classes = dataset.size, dataset.classes
    arrays = formats.folders(path, size) if path.is_dir() else formats.read_npz(path, classes)
    train, test = (Split(resize_images(s.images, size), s.labels) for s in arrays.splits.values())
    arrays = DataArrays(train, test, arrays.classes)
    entry, output = registry.entry(dataset.archive), files.data_file(name)
    _check_official(arrays, entry, size, path)
    _check_params(name, dataset, arrays)
    store.save(output, name, arrays, products.data_plan(dataset, known={}))
    print(
        f"{output}: {len(train.labels):,} training and {len(test.labels):,} test images from "
        f"{path}, as many as in {entry.title}; fingerprints that are the official ones at {size} "
        f"pixels: {' and '.join(entry.fingerprints_at(size)) or 'none'}"
    )


def _read_archive(dataset: params.OfficialData) -> DataArrays:
    """The images of an official archive, which `twf data fetch` has brought."""
    name, entry = dataset.archive, registry.entry(dataset.archive)
    reader = lookup("format", formats.READERS, str(entry.format), f"the registry's {name}")
    folder, paths = files.archive_folder(name), fetch.verified(name, entry)
    with fetch.extracted(paths) as content, reading(folder, f"the format {entry.format}"):
        arrays = reader(content, dataset.size)
    _check_official(arrays, entry, dataset.size, folder)
    return arrays


def _check_official(arrays: DataArrays, entry: registry.Entry, size: int, path: Path) -> None:
    """Raise `UserError` where `arrays`, read from `path`, are not the images of `entry`.

    Fingerprints are compared where the registry has them at this `size`.
    """
    if not entry.images:
        raise UserError(f"{entry.title} is no set of images: correct 'archive' in params.yaml")
    for split, count in entry.images.items():
        if (actual := len(arrays.splits[split].labels)) != count:
            problem = f"{actual:,} {split} images, expected {count:,}"
            raise UserError(f"{path} has {problem}: bring the whole official split")
    for name, expected in entry.fingerprints_at(size).items():
        if (fingerprint := arrays.splits[name].fingerprint) != expected:
            raise UserError(
                f"the {name} images of {path} have the fingerprint {fingerprint}, expected "
                f"{expected}: bring RGB pixels as they are in the archive, never saved as JPEG nor "
                "resized otherwise, with labels in the official class order (docs/data.md)"
            )


def _check_params(name: str, dataset: params.Dataset, arrays: DataArrays) -> None:
    """Raise `UserError` where `arrays` differ from the data set's entry in `params.yaml`."""
    if (classes := len(arrays.classes)) != dataset.classes:
        raise UserError(f"datasets.{name}.classes is {dataset.classes}, the data have {classes}")
    for split, data in arrays.splits.items():
        height, width = data.images.shape[1:3]
        if (height, width) != (dataset.size, dataset.size):
            raise UserError(
                f"datasets.{name}.size is {dataset.size}, but {split} images have {height} x "
                f"{width} pixels: change 'size' or the images"
            )
        if absent := set(range(classes)) - set(data.labels.tolist()):
            raise UserError(
                f"datasets.{name}: no {split} image of class {', '.join(map(str, sorted(absent)))};"
                f" each of the {classes} classes needs one"
            )
