"""Image files of every kind that Pillow opens: the same image in RGB, or refused by name."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from twf.data.checks import BrokenFileError
from twf.data.images import read_split

SIDE = 4


def read(file: Path) -> np.ndarray:
    return read_split({file: 0}, SIDE).images[0]


def of_mode(mode: str) -> Image.Image:
    """A picture of a mode, whose pixels differ; opaque."""
    grey = Image.fromarray((np.arange(SIDE**2, dtype=np.uint8) * 16).reshape(SIDE, SIDE))
    if mode in ("I;16", "I", "F"):
        return Image.fromarray(np.asarray(grey).astype({"F": "f4", "I": "i4"}.get(mode, "u2")))
    if mode == "PA":
        return grey.convert("RGBA").convert("PA")
    return grey.convert(mode)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        *[(mode, "png") for mode in ("1", "L", "P", "RGB", "LA", "RGBA")],
        *[(mode, "tiff") for mode in ("1", "L", "P", "RGB", "LA", "RGBA", "RGBX", "PA")],
        *[(mode, "webp") for mode in ("RGB", "RGBA")],
        ("P", "gif"),
        ("RGB", "bmp"),
        ("L", "pgm"),
        ("RGB", "ppm"),
    ],
)
def test_an_image_without_loss_is_the_same_in_rgb(tmp_path, mode, suffix):
    file, image = tmp_path / f"a.{suffix}", of_mode(mode)
    image.save(file, **({"lossless": True} if suffix == "webp" else {}))
    assert np.array_equal(read(file), np.asarray(image.convert("RGBA"))[:, :, :3])


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr"])
def test_print_and_film_colours_become_rgb_as_everywhere(tmp_path, mode):
    file, image = tmp_path / "a.tiff", of_mode(mode)
    image.save(file)
    assert np.array_equal(read(file), np.asarray(image.convert("RGB")))


def a_png_of_16_bits(file: Path) -> None:
    """Pillow, which writes none, opens it as if it had 8."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    rows = b"".join(b"\0" + bytes(range(SIDE * 6)) for _ in range(SIDE))
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 16, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("I;16", "png"), ("I;16", "tiff"), ("I", "tiff"), ("F", "tiff"), ("LAB", "tiff")],
)
def test_an_image_of_more_than_8_bits_is_refused_by_name(tmp_path, mode, suffix):
    file = tmp_path / f"deep.{suffix}"
    Image.new(mode, (SIDE, SIDE)).save(file) if mode == "LAB" else of_mode(mode).save(file)
    with pytest.raises(BrokenFileError, match=rf"deep\.{suffix} .*mode {mode}"):
        read(file)


def test_what_pillow_opens_with_8_of_16_bits_is_refused_too(tmp_path):
    a_png_of_16_bits(tmp_path / "deep.png")
    (tmp_path / "deep.ppm").write_bytes(b"P6 4 4 65535\n" + bytes(96))
    (tmp_path / "deep.pgm").write_bytes(b"P5 4 4 65535\n" + bytes(32))
    for name in ("deep.png", "deep.ppm", "deep.pgm"):
        with pytest.raises(BrokenFileError, match=f"{name} has more than 8 bits"):
            read(tmp_path / name)


def test_planes_of_16_bits_are_not_read_as_8(tmp_path):
    """Red, green and blue one after the other, which Pillow decodes by the 8 bits of its mode."""
    file = tmp_path / "deep.tiff"
    of_mode("RGB").save(file, tiffinfo={TiffImagePlugin.PLANAR_CONFIGURATION: 2})
    eight, sixteen = struct.pack("<3H", 8, 8, 8), struct.pack("<3H", 16, 16, 16)
    file.write_bytes(file.read_bytes().replace(eight, sixteen) + bytes(SIDE**2 * 3))
    with pytest.raises(BrokenFileError, match=r"deep\.tiff has more than 8 bits"):
        read(file)


def test_values_below_0_do_not_become_bright(tmp_path):
    of_mode("L").save(tmp_path / "signed.tiff", tiffinfo={TiffImagePlugin.SAMPLEFORMAT: 2})
    with pytest.raises(BrokenFileError, match=r"signed\.tiff has signed values"):
        read(tmp_path / "signed.tiff")


@pytest.mark.parametrize(("mode", "suffix"), [("RGBA", "png"), ("LA", "png"), ("RGBA", "webp")])
def test_what_is_transparent_is_refused(tmp_path, mode, suffix):
    file = tmp_path / f"clear.{suffix}"
    image = of_mode(mode)
    image.putalpha(128)
    image.save(file)
    with pytest.raises(BrokenFileError, match=f"clear.{suffix} is partly transparent"):
        read(file)


def test_a_palette_with_a_transparent_colour_in_use_is_refused(tmp_path):
    of_mode("P").save(tmp_path / "clear.gif", transparency=0)
    with pytest.raises(BrokenFileError, match="partly transparent"):
        read(tmp_path / "clear.gif")


def test_a_wide_bitmap_is_not_taken_for_a_deep_one(tmp_path):
    Image.new("RGB", (200, 3), (1, 2, 3)).save(tmp_path / "wide.bmp")
    assert (read(tmp_path / "wide.bmp") == (1, 2, 3)).all()
