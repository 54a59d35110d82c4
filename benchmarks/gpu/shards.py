"""Images as lossless mosaics in files of a given size: half the bytes, and pieces that travel.

`python -m benchmarks.gpu.shards FOLDER NAME OUT.npz` puts a data set together again.
"""

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from twf.data.store import DataArrays

SIDE = 40  # images along a mosaic's side


def cut(arrays: DataArrays, mib: float) -> list[bytes]:
    """Pieces of at most so many MiB of one file."""
    layout: dict[str, Any] = {"class_names": arrays.classes}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as file:
        for split, data in arrays.splits.items():
            count, height, width, _ = data.images.shape
            layout[split] = {"shape": (height, width), "labels": data.labels.tolist()}
            for start in range(0, count, SIDE**2):
                full = np.zeros((SIDE**2, height, width, 3), np.uint8)  # the rest is black
                full[: count - start] = data.images[start : start + SIDE**2]
                rows = full.reshape(SIDE, SIDE, height, width, 3).swapaxes(1, 2)
                mosaic = Image.fromarray(rows.reshape(SIDE * height, SIDE * width, 3))
                with file.open(f"{split}/{start:09d}.webp", "w") as image:
                    mosaic.save(image, "WEBP", lossless=True, quality=60, method=4)
        file.writestr("layout.json", json.dumps(layout), zipfile.ZIP_DEFLATED)
    content, size = whole.getvalue(), int(mib * 2**20)
    return [content[start : start + size] for start in range(0, len(content), size)]


def join(folder: Path, name: str, out: Path) -> None:
    """Write the arrays of a data set, all of whose pieces are in `folder`, as `twf data` reads.

    A piece is called NAME.zip.K-of-N.
    """
    pieces = [path.read_bytes() for path in sorted(folder.glob(f"{name}.zip.*"))]
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as file:
        layout = json.loads(file.read("layout.json"))
        arrays: dict[str, Any] = {"class_names": np.array(layout.pop("class_names"))}
        for split, about in layout.items():
            height, width = about["shape"]
            mosaics = [path for path in file.namelist() if path.startswith(f"{split}/")]
            pixels = (np.asarray(Image.open(file.open(path)).convert("RGB")) for path in mosaics)
            rows = [p.reshape(SIDE, height, SIDE, width, 3).swapaxes(1, 2) for p in pixels]
            images = np.concatenate(rows).reshape(-1, height, width, 3)
            arrays[f"x_{split}"] = images[: len(about["labels"])]
            arrays[f"y_{split}"] = np.array(about["labels"], np.int64)
    np.savez(out, **arrays)


if __name__ == "__main__":
    join(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
