"""The demo's images, which no archive has: digits of scikit-learn, drawn letters and textures."""

import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from twf.data.formats import resize_images
from twf.data.store import DataArrays, Split
from twf.study.params import DigitsData, DrawnData

Floats = NDArray[np.float64]


def digits(dataset: DigitsData) -> DataArrays:
    """UCI's 1,797 handwritten digits of 8 x 8 pixels, enlarged to `size`, grey in three channels.

    A random `test_share` of each class, rounded to whole images, is the test.
    """
    from sklearn.datasets import load_digits

    content = load_digits()
    labels = content.target.astype(np.int64)
    grey = np.round(content.images * (255 / 16)).astype(np.uint8)  # [N, 8, 8]
    images = resize_images(np.repeat(grey[..., None], 3, axis=-1), dataset.size)
    generator = np.random.default_rng(dataset.seed)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        test[members[: round(dataset.test_share * len(members))]] = True
    train, held_out = (Split(images[part], labels[part]) for part in (~test, test))
    return DataArrays(train, held_out, [str(name) for name in content.target_names])


# Capital letters, light on black as the digits are, from the fonts that matplotlib ships.
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


def letters(dataset: DrawnData) -> DataArrays:
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
        _draw_letters(glyphs, dataset.train_per_class, dataset.size, train),
        _draw_letters(glyphs, dataset.test_per_class, dataset.size, test),
        list(LETTERS),
    )


def _glyph(font: str, letter: str, points: int, outline: int) -> Image.Image:
    """One letter, white on black and cut to its ink; strokes `outline` pixels wider each side."""
    import matplotlib

    file = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{font}.ttf")
    # the basic layout, as the other needs a library that not every machine has
    typeface = ImageFont.truetype(file, points, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = typeface.getbbox(letter, stroke_width=outline)
    glyph = Image.new("L", (int(right - left), int(bottom - top)))
    draw = ImageDraw.Draw(glyph)
    draw.text((-left, -top), letter, font=typeface, fill=255, stroke_width=outline)
    return glyph


def _draw_letters(
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
    glyph: Image.Image, side: int, height: float, width: float, angle: float, shift: Floats
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


# The classes of textures by what they are waves along, in degrees, and how many periods a side has
KINDS = {"vertical": 0, "horizontal": 90, "diagonal": 45, "checks": None}
PERIODS = {"coarse": (1.5, 2.5), "fine": (3.5, 5.0)}


def textures(dataset: DrawnData) -> DataArrays:
    """Stripes and checks in colour, which share little with handwriting.

    Each image of a class has its own periods, direction, sharpness, colours, contrast and noise.
    """
    train, test = np.random.default_rng(dataset.seed).spawn(2)
    return DataArrays(
        _draw_textures(dataset.train_per_class, dataset.size, train),
        _draw_textures(dataset.test_per_class, dataset.size, test),
        [f"{fineness} {kind}" for fineness in PERIODS for kind in KINDS],
    )


def _draw_textures(count: int, size: int, generator: np.random.Generator) -> Split:
    """`count` images of each class, class after class."""
    y, x = np.indices((size, size)) / (size - 1) - 0.5

    def each(low: float, high: float, *shape: int) -> Floats:
        return generator.uniform(low, high, (count, 1, 1, *shape))

    def wave(degrees: float, periods: tuple[float, float]) -> Floats:
        angle = np.deg2rad(degrees + each(-12, 12))
        along = x * np.cos(angle) + y * np.sin(angle)
        waves: Floats = np.sin(2 * np.pi * (each(*periods) * along + each(0, 1)))
        sharpness = each(0.5, 4)  # from smooth to almost square
        return np.tanh(sharpness * waves) / np.tanh(sharpness)

    patterns = [
        wave(0, periods) * wave(90, periods) if degrees is None else wave(degrees, periods)
        for periods in PERIODS.values()
        for degrees in KINDS.values()
    ]
    images = []
    for pattern in patterns:
        contrast = each(0.3, 0.9, 3)
        darkest = generator.uniform(0, 1 - contrast)
        # one channel may fall where another rises
        direction = generator.choice([-1, 1], (count, 1, 1, 3))
        mixed = darkest + contrast * (0.5 + 0.5 * direction * pattern[..., None])
        noise = each(0, 0.06, 1) * generator.standard_normal(mixed.shape)
        images.append(np.round(255 * (mixed + noise)).clip(0, 255).astype(np.uint8))
    return Split(np.concatenate(images), np.repeat(np.arange(len(patterns)), count))


# by the `reader` of params.yaml; a function takes its entry there
READERS: dict[str, Callable[..., DataArrays]]
READERS = {"digits": digits, "letters": letters, "textures": textures}
