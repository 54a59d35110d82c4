"""Capital letters drawn from the fonts that matplotlib ships: light on black, as the digits are."""

from __future__ import annotations

import string
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from twf.data.store import DataArrays, Split
from twf.study.params import DrawnData

# By name, not by listing the folder, so that a release of matplotlib with another font changes
# nothing. Its other fonts have no Latin capitals, or mathematical and calligraphic ones.
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *(f"cm{style}10" for style in ("b", "r", "ss", "ti", "tt")),
)
LETTERS = string.ascii_uppercase
OVERSAMPLING = 4  # a letter is drawn on a canvas this many times the image's side
OUTLINES = (0, 1 / 64, 2 / 64)  # strokes grow by this much on both sides, in sides of the canvas


def read(dataset: DrawnData) -> DataArrays:
    """The 26 letters; each image has its own font, weight, shape, place, blur, brightness, noise.

    Weight and blur vary because the digits' strokes are thick and soft.
    """
    canvas = OVERSAMPLING * dataset.size
    glyphs = [
        [_glyph(font, letter, canvas, round(outline * canvas)) for letter in LETTERS]
        for font in FONTS
        for outline in OUTLINES
    ]
    train, test = np.random.default_rng(dataset.seed).spawn(2)
    return DataArrays(
        _draw(glyphs, dataset.train_per_class, dataset.size, train),
        _draw(glyphs, dataset.test_per_class, dataset.size, test),
        list(LETTERS),
    )


def _glyph(font: str, letter: str, points: int, outline: int) -> Image.Image:
    """One letter, white on black and cut to its ink; strokes `outline` pixels wider each side."""
    file = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{font}.ttf")
    # the basic layout, as the other needs a library that not every machine has
    typeface = ImageFont.truetype(file, points, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = typeface.getbbox(letter, stroke_width=outline)
    glyph = Image.new("L", (int(right - left), int(bottom - top)))
    draw = ImageDraw.Draw(glyph)
    draw.text((-left, -top), letter, font=typeface, fill=255, stroke_width=outline)
    return glyph


def _draw(
    glyphs: list[list[Image.Image]], per_class: int, size: int, generator: np.random.Generator
) -> Split:
    """`per_class` images of each letter; `glyphs` are by font and weight, then by letter."""
    labels = np.repeat(np.arange(len(LETTERS)), per_class)
    count = len(labels)
    faces = generator.integers(len(glyphs), size=count)
    heights = generator.uniform(0.7, 0.95, count)  # of the upright letter, in sides of the image
    widths = generator.uniform(0.8, 1.15, count)  # in the font's own
    angles = np.deg2rad(generator.uniform(-20, 20, count))
    shifts = generator.uniform(-0.08, 0.08, (count, 2))  # in sides of the image
    blurs = generator.uniform(0, 0.05, count)  # standard deviations, in sides of the image
    grey = np.empty((count, size, size))
    for i, label in enumerate(labels):
        glyph = glyphs[faces[i]][label]
        canvas = _place(glyph, OVERSAMPLING * size, heights[i], widths[i], angles[i], shifts[i])
        soft = canvas.filter(ImageFilter.GaussianBlur(float(blurs[i]) * canvas.width))
        grey[i] = np.asarray(soft.reduce(OVERSAMPLING))
    grey *= generator.uniform(0.7, 1.0, (count, 1, 1))
    grey += generator.uniform(0, 12, (count, 1, 1)) * generator.standard_normal(grey.shape)
    images = np.round(grey).clip(0, 255).astype(np.uint8)
    return Split(np.repeat(images[..., None], 3, axis=-1), labels)


def _place(
    glyph: Image.Image,
    side: int,
    height: float,
    width: float,
    angle: float,
    shift: NDArray[np.float64],
) -> Image.Image:
    """The glyph scaled, turned by `angle` radians and shifted by `shift` [2], on a black canvas."""
    scale_y = height * side / glyph.height
    scale_x = min(scale_y * width, 0.95 * side / glyph.width)
    cosine, sine = np.cos(angle), np.sin(angle)
    # Pillow asks where each pixel of the canvas comes from: undo shift, turn, scale, in this order
    x, y = side * (0.5 + shift)
    a, b = cosine / scale_x, sine / scale_x
    d, e = -sine / scale_y, cosine / scale_y
    c = glyph.width / 2 - a * x - b * y
    f = glyph.height / 2 - d * x - e * y
    return glyph.transform(
        (side, side), Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BILINEAR
    )
