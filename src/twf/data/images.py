"""Image files as arrays: red-green-blue, of one size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, TiffImagePlugin

from twf.data.checks import BrokenFileError, reading
from twf.data.store import Images, Split

# What is decoded. Pillow would hand Encapsulated PostScript, a program, to Ghostscript to run.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
# Pillow's modes of 8 bits or fewer, which become RGB without loss; and two, of printers and
# cameras, that every reader turns into RGB.
MODES = ("1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr")
WITH_ALPHA = ("LA", "PA", "RGBA", "La", "RGBa")
SIGNED = 2  # a sample format of TIFF
DEEP = re.compile("(I|L|LA|RGB|RGBA|RGBX|CMYK);16")  # not BGR;16, a pixel of 5, 6 and 5 bits


def read_split(labels: dict[Path, int], size: int) -> Split:
    """The labelled image files as uint8 [N, size, size, 3] and int64 [N]; grey ones become RGB.

    An image of another size is squashed by Pillow's bilinear filter, which is also what
    torchvision's `Resize((size, size))` does to a Pillow image. One image at a time is decoded.
    Its content, not its name, decides which of `FORMATS` a file is. Raises `BrokenFileError`, also
    for an image of more than 8 bits a channel, or of which something is transparent.
    """
    images = np.empty((len(labels), size, size, 3), dtype=np.uint8)
    for place, file in zip(images, labels, strict=True):
        with reading(file, "an image"), Image.open(file, formats=FORMATS) as image:
            place[...] = _resize(_as_rgb(file, image), size)
    return Split(images, np.array(list(labels.values()), dtype=np.int64))


def read_classes(folders: Sequence[Path], size: int, passes: Callable[[Path], bool]) -> Split:
    """The images in a folder for each label, at any depth, as `read_split` reads them.

    Each file is one, but those that `passes` is true of. Raises `BrokenFileError`, also for a
    folder without any.
    """
    labels: dict[Path, int] = {}
    for label, folder in enumerate(folders):
        files = sorted(path for path in folder.rglob("*") if path.is_file() and not passes(path))
        if not files:
            raise BrokenFileError(folder, "has no image")
        labels |= dict.fromkeys(files, label)
    return read_split(labels, size)


def resize_images(images: Images, size: int) -> Images:
    """Images uint8 [N, H, W, 3] as [N, size, size, 3], as `read_split` does it to files."""
    if images.shape[1:3] == (size, size):
        return images
    resized = np.empty((len(images), size, size, 3), dtype=np.uint8)
    for place, image in zip(resized, images, strict=True):
        place[...] = _resize(Image.fromarray(np.ascontiguousarray(image)), size)
    return resized


def _as_rgb(file: Path, image: ImageFile.ImageFile) -> Image.Image:
    """An image as RGB, where that is the same image.

    Pillow would clip what has 16 bits, or drop half of them, and what is behind transparency may
    have any colour.
    """
    mode = image.mode
    if _is_deep(image) or mode in ("I", "F"):
        problem = f"has more than 8 bits a channel (Pillow's mode {mode}): save it with 8"
        raise BrokenFileError(file, problem)
    if SIGNED in getattr(image, "tag_v2", {}).get(TiffImagePlugin.SAMPLEFORMAT, ()):
        raise BrokenFileError(file, "has signed values: save it with 0 to 255")
    if mode not in (*MODES, *WITH_ALPHA):
        raise BrokenFileError(file, f"has Pillow's mode {mode}: save it as RGB")
    if mode in WITH_ALPHA or "transparency" in image.info:
        opaque = image.convert("RGBA").getchannel("A").getextrema() == (255, 255)
        if not opaque:
            raise BrokenFileError(file, "is partly transparent: paint it on a background first")
    return image.convert("RGB")


def _is_deep(image: ImageFile.ImageFile) -> bool:
    """Whether its file has more than 8 bits a channel, also where Pillow's mode has 8.

    By how Pillow will decode it: a raw mode as `RGB;16B`, or the largest value.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):  # planes of 16 bits are tiles of 8 there
        return max(image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))) > 8
    for codec, _, _, how in image.tile:
        words = how if isinstance(how, tuple) else (how,)
        if DEEP.match(str(words[0])) or (codec == "ppm" and words[-1] > 255):
            return True
    return False


def _resize(image: Image.Image, size: int) -> Images:
    if image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)
