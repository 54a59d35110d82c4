"""Image files of every kind that Pillow opens: the same image in RGB, or refused by name."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from twf.data.images import BrokenFileError, read_split, resize_images

SIDE = 16


def read(file: Path) -> np.ndarray:
    return read_split({file: 0}, SIDE).images[0]


def picture(mode: str) -> Image.Image:
    """A picture of a mode, opaque and without symmetry."""
    grey = Image.fromarray((np.arange(SIDE**2) % 251).astype(np.uint8).reshape(SIDE, SIDE))
    if mode in ("I;16", "I", "F"):
        return Image.fromarray(np.asarray(grey).astype({"F": "f4", "I": "i4"}.get(mode, "u2")))
    return grey.convert("RGBA").convert("PA") if mode == "PA" else grey.convert(mode)


def save(image: Image.Image, file: Path, **options: object) -> Path:
    image.save(file, **({"lossless": True} if file.suffix == ".webp" else {}), **options)
    return file


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *[(mode, "tiff") for mode in ("1", "L", "P", "RGB", "LA", "RGBA", "RGBX", "PA", "CMYK")],
        *[("RGB", "png"), ("RGB", "webp"), ("P", "gif"), ("RGB", "bmp"), ("RGB", "ppm")],
    ],
)
def test_an_image_without_loss_is_the_same_in_rgb(tmp_path, mode, suffix):
    image = picture(mode)
    file = save(image, tmp_path / f"a.{suffix}")
    assert np.array_equal(read(file), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_photo_is_turned_as_a_viewer_shows_it(tmp_path, orientation):
    """Against the eight orientations of the EXIF standard, written out."""
    stored = np.zeros((SIDE, 2 * SIDE, 3), np.uint8)
    stored[: SIDE // 2, : SIDE // 2] = (255, 0, 0)
    stored[: SIDE // 2, SIDE:] = (0, 255, 0)
    shown = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.swapaxes(0, 1),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].swapaxes(0, 1),
        8: np.rot90(stored),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = save(Image.fromarray(stored), tmp_path / "a.png", exif=exif)
    assert np.array_equal(read(file), resize_images(shown[None], SIDE)[0])


def test_a_picture_larger_than_any_photo_is_refused_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", SIDE)  # of which Pillow refuses the double
    with pytest.raises(BrokenFileError, match=r"bomb\.png .*decompression bomb"):
        read(save(picture("RGB"), tmp_path / "bomb.png"))


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_an_image_of_more_than_8_bits_is_refused_by_name(tmp_path, mode):
    with pytest.raises(BrokenFileError, match=rf"odd\.tiff .*mode {mode}"):
        read(save(picture(mode), tmp_path / "odd.tiff"))
