"""Images in folders, one per class: `train/CLASS/*` and `test/CLASS/*` (or `val/CLASS/*`)."""

from __future__ import annotations

from pathlib import Path

from twf.data.checks import BrokenFileError
from twf.data.images import read_classes
from twf.data.leftovers import passed_over
from twf.data.store import DataArrays
from twf.errors import few

TRAIN = "train"
TESTS = ("test", "val")  # what the folder of test images may be called


def read(path: Path, size: int) -> DataArrays:
    """All images, squashed to `size`, grey ones as RGB; labels are the ranks of the sorted names.

    Where `path` has a single folder of another name, as archives often do, they are looked for
    there. Raises `BrokenFileError`, also for a folder that is missing or ambiguous.
    """
    with passed_over(path) as passes:

        def names(folder: Path) -> list[str]:
            return sorted(f.name for f in folder.iterdir() if not passes(f) and f.is_dir())

        found = names(path)
        if len(found) == 1 and found[0] not in (TRAIN, *TESTS):
            path = path / found[0]
            found = names(path)
        tests = [name for name in TESTS if name in found]
        if TRAIN not in found or not tests:
            needed = " or ".join(TESTS if TRAIN in found else [TRAIN])
            raise BrokenFileError(
                path,
                f"has no {needed}/CLASS/*, its folders are: {few(found) or 'none'}; put the "
                "training images in train/CLASS, the test images in test/CLASS",
            )
        if len(tests) > 1:
            raise BrokenFileError(path, "has both test/ and val/; leave there the one to test on")
        train, test = path / TRAIN, path / tests[0]
        classes, tested = names(train), names(test)
        for folder, lacking in ((train, set(tested) - {*classes}), (test, {*classes} - {*tested})):
            if lacking:
                problem = f"lacks classes that the other split has: {few(sorted(lacking))}"
                raise BrokenFileError(folder, f"{problem}; each class needs a folder in both")
        return DataArrays(
            read_classes([train / name for name in classes], size, passes),
            read_classes([test / name for name in classes], size, passes),
            classes,
        )
