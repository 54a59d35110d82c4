"""Images as lossless mosaics in files of a given size: half the bytes, and pieces that travel.

`python -m benchmarks.gpu.shards FOLDER NAME OUT.npz` puts a data set together again.
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
    """Write `folder`/`name`.zip.K-of-N, pieces of at most so many MiB of one file."""
    layout: dict[str, Any] = {"classes": arrays.classes}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for split, data in arrays.splits.items():
            layout[split] = {"shape": data.images.shape, "labels": data.labels.tolist()}
            for number, start in enumerate(range(0, len(data.images), SIDE**2)):
                mosaic = _mosaic(data.images[start : start + SIDE**2])
                file.writestr(f"{split}/{number:04d}.webp", mosaic)
        file.writestr("layout.json", json.dumps(layout), zipfile.ZIP_DEFLATED)
    content, size = whole.getvalue(), int(mib * 2**20)
    pieces = [content[start : start + size] for start in range(0, len(content), size)]
    folder.mkdir(parents=True, exist_ok=True)
    made = [folder / f"{name}.zip.{k:03d}-of-{len(pieces)}" for k in range(1, len(pieces) + 1)]
    for path, piece in zip(made, pieces, strict=True):
        path.write_bytes(piece)
    return made


def join(folder: Path, name: str, out: Path) -> None:
    """Write the arrays of a data set, all of whose pieces are in `folder`, as `twf data` reads."""
    pieces = [path.read_bytes() for path in sorted(folder.glob(f"{name}.zip.*"))]
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as file:
        layout = json.loads(file.read("layout.json"))
        arrays: dict[str, Any] = {"class_names": np.array(layout["classes"])}
        for split in ("train", "test"):
            count, height, width, _ = layout[split]["shape"]
            mosaics = [file.read(path) for path in file.namelist() if path.startswith(split)]
            images = [_images(mosaic, height, width) for mosaic in mosaics]
            arrays[f"x_{split}"] = np.concatenate(images)[:count]
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
    join(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
