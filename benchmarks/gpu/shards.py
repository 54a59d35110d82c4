"""Images as lossless mosaics in files of a given size: half the bytes, and pieces that travel.

`python -m benchmarks.gpu.shards join FOLDER NAME OUT.npz` puts a data set together again.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twf.data.store import DataArrays, Images

SIDE = 40  # images along a mosaic's side


def cut(arrays: DataArrays, folder: Path, name: str, mib: float) -> list[Path]:
    """Write `folder`/`name`.K-of-N.zip, each of at most so many MiB (or of one mosaic)."""
    files: dict[str, bytes] = {}
    layout: dict[str, Any] = {"classes": arrays.classes}
    for split, data in arrays.splits.items():
        layout[split] = {"shape": data.images.shape, "labels": data.labels.tolist()}
        for number, start in enumerate(range(0, len(data.images), SIDE**2)):
            files[f"{split}/{number:04d}.webp"] = _mosaic(data.images[start : start + SIDE**2])
    groups: list[dict[str, bytes]] = [{}]
    for path, content in files.items():
        if groups[-1] and sum(map(len, groups[-1].values())) + len(content) > mib * 2**20:
            groups.append({})
        groups[-1][path] = content
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number, group in enumerate(groups, start=1):
        made.append(folder / f"{name}.{number}-of-{len(groups)}.zip")
        with zipfile.ZipFile(made[-1], "w") as file:
            for path, content in group.items():
                file.writestr(path, content)
            if number == 1:
                file.writestr("layout.json", json.dumps(layout), zipfile.ZIP_DEFLATED)
    return made


def join(folder: Path, name: str, out: Path) -> None:
    """Write the arrays of a data set, all of whose files are in `folder`, for `twf data import`."""
    files: dict[str, bytes] = {}
    for path in sorted(folder.glob(f"{name}.*.zip")):
        with zipfile.ZipFile(path) as file:
            files |= {inner: file.read(inner) for inner in file.namelist()}
    layout = json.loads(files.pop("layout.json"))
    arrays: dict[str, Any] = {"class_names": np.array(layout["classes"])}
    for split in ("train", "test"):
        count, height, width, _ = layout[split]["shape"]
        mosaics = (files[path] for path in sorted(files) if path.startswith(split))
        parts = [_images(mosaic, height, width) for mosaic in mosaics]
        arrays[f"x_{split}"] = np.concatenate(parts)[:count]
        arrays[f"y_{split}"] = np.array(layout[split]["labels"], np.int64)
    np.savez(out, **arrays)


def _mosaic(images: Images) -> bytes:
    """Up to `SIDE`^2 images [n, H, W, 3] as a WebP file without loss; the rest is black."""
    count, height, width, _ = images.shape
    full = np.zeros((SIDE**2, height, width, 3), np.uint8)
    full[:count] = images
    rows = full.reshape(SIDE, SIDE, height, width, 3).swapaxes(1, 2)
    file = io.BytesIO()
    mosaic = Image.fromarray(rows.reshape(SIDE * height, SIDE * width, 3))
    mosaic.save(file, "WEBP", lossless=True, quality=60, method=4)
    return file.getvalue()


def _images(mosaic: bytes, height: int, width: int) -> Images:
    """The inverse of `_mosaic`, [SIDE^2, H, W, 3], black images at the end among them."""
    pixels = np.asarray(Image.open(io.BytesIO(mosaic)).convert("RGB"))
    rows = pixels.reshape(SIDE, height, SIDE, width, 3).swapaxes(1, 2)
    return rows.reshape(-1, height, width, 3)


if __name__ == "__main__":
    _, word, folder, name, out = sys.argv
    if word != "join":
        sys.exit(__doc__)
    join(Path(folder), name, Path(out))
