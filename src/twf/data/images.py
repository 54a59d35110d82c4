"""Image files as arrays: red-green-blue, of one size, turned as a viewer shows them.

And what all readers share: how they open files of any content.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from twf.data.store import Images, Split
from twf.errors import UserError

# What is decoded. Pillow would hand Encapsulated PostScript, a program, to Ghostscript to run.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Pillow's modes of 8 bits or fewer
MODES = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LA", "PA", "RGBA")


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
    `UserError`, also for an image of more than 8 bits a channel.
    """
    images = np.empty((len(labels), size, size, 3), dtype=np.uint8)
    for row, file in zip(images, labels, strict=True):
        with reading(file, "an image"), Image.open(file, formats=FORMATS) as image:
            if image.mode not in MODES:
                remedy = "save it as RGB with 8 bits a channel"
                raise UserError(f"{file} has Pillow's mode {image.mode}: {remedy}")
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
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)
