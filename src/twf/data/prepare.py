"""Prepared data sets, from a reader or from a user's file, checked before they are written."""

from pathlib import Path

from twf import files
from twf.data import fetch, formats, packaged, registry, store
from twf.data.images import reading, resize_images
from twf.data.store import DataArrays, Split
from twf.errors import UserError
from twf.study import params, products


def prepare(name: str, dataset: params.Dataset, output: Path) -> None:
    """Read or draw the data set `name` of `params.yaml`, check it, and write it to `output`."""
    made_of = products.data_plan(dataset, known={})
    arrays = _read(dataset)
    _check_params(name, dataset, arrays)
    store.save(output, name, arrays, made_of)


def import_data(name: str, dataset: params.Dataset, path: Path) -> None:
    """Prepare the published data set `name` from a user's `.npz` or folder of class folders.

    Images of another size are squashed to the data set's, and must then be those of the official
    archive. Raises `UserError`, and leaves what was there, where they are not. Prints what was
    read and checked.
    """
    if dataset.reader != "official":
        raise UserError(
            f"datasets.{name} is no published data set: `twf data prepare {name}` makes it"
        )
    size, classes = dataset.size, dataset.classes
    arrays = formats.folders(path, size) if path.is_dir() else formats.read_npz(path, classes)
    train, test = (Split(resize_images(s.images, size), s.labels) for s in arrays.splits.values())
    arrays = DataArrays(train, test, arrays.classes)
    entry, output = registry.images_entry(dataset.archive), files.data_file(name)
    check(arrays, entry, size, path)
    _check_params(name, dataset, arrays)
    store.save(output, name, arrays, products.data_plan(dataset, known={}))
    compared = " and ".join(entry.fingerprints_at(size)) or "none"
    print(
        f"{output}: {len(train.labels):,} training and {len(test.labels):,} test images of "
        f"{len(arrays.classes)} classes from {path}, as many as in {entry.title}; fingerprints "
        f"that are the official ones at {size} pixels: {compared}. Next: `twf plan STUDY`"
    )


def check(arrays: DataArrays, entry: registry.ImagesEntry, size: int, path: Path) -> None:
    """Raise `UserError` where `arrays`, read from `path`, are not the images of `entry`.

    Fingerprints are compared where the registry has them at this `size`.
    """
    for split, count in entry.images.items():
        if (actual := len(arrays.splits[split].labels)) != count:
            raise UserError(
                f"{path} has {actual:,} {split} images, expected {count:,}: bring the whole "
                "official split"
            )
    for name, expected in entry.fingerprints_at(size).items():
        if (fingerprint := arrays.splits[name].fingerprint) != expected:
            raise UserError(
                f"the {name} images of {path} have the fingerprint {fingerprint}, expected "
                f"{expected}: bring RGB pixels as they are in the archive, never saved as JPEG nor "
                "resized otherwise, with labels in the official class order (docs/data.md)"
            )


def _read(dataset: params.Dataset) -> DataArrays:
    """Call the data set's reader; an official archive is one that `twf data fetch` has brought."""
    if dataset.reader == "archive":
        return formats.read_npz(Path(dataset.file), dataset.classes)
    if dataset.reader != "official":
        return packaged.READERS[dataset.reader](dataset)
    entry = registry.images_entry(dataset.archive)
    folder, paths = files.archive_folder(dataset.archive), fetch.verified(dataset.archive, entry)
    with fetch.extracted(paths) as content, reading(folder, f"the format {entry.format}"):
        arrays = formats.READERS[entry.format](content, dataset.size)
    check(arrays, entry, dataset.size, folder)
    return arrays


def _check_params(name: str, dataset: params.Dataset, arrays: DataArrays) -> None:
    """Raise `UserError` where `arrays` differ from the data set's entry in `params.yaml`."""
    if len(arrays.classes) != dataset.classes:
        raise UserError(
            f"datasets.{name}.classes is {dataset.classes}, but the data have "
            f"{len(arrays.classes)} classes"
        )
    for split, data in arrays.splits.items():
        height, width = data.images.shape[1:3]
        if (height, width) != (dataset.size, dataset.size):
            raise UserError(
                f"datasets.{name}.size is {dataset.size}, but {split} images have {height} x "
                f"{width} pixels: change 'size' or the images"
            )
        if absent := set(range(dataset.classes)) - set(data.labels.tolist()):
            raise UserError(
                f"datasets.{name}: no {split} image of class {', '.join(map(str, sorted(absent)))};"
                f" each of the {dataset.classes} classes needs one"
            )
