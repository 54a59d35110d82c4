"""The demo's images, which no archive has: digits of scikit-learn, drawn letters and textures."""

import string
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from twf.data.images import resize_images
from twf.data.store import DataArrays, Images, Split
from twf.study.params import DigitsData, DrawnData

Floats = NDArray[np.float64]
# (generator, x, y [M, size, size] from -0.5 to 0.5) -> a pattern [M, size, size] from -1 to 1
Texture = Callable[[np.random.Generator, Floats, Floats], Floats]


def digits(dataset: DigitsData) -> DataArrays:
    """UCI's 1,797 handwritten digits of 8 x 8 pixels, enlarged to `size`, grey in three channels.

    A random `test_share` of each class, rounded to whole images, is the test.
    """
    from sklearn.datasets import load_digits

    content = load_digits()
    labels = content.target.astype(np.int64)
    grey = np.round(content.images * (255 / 16)).astype(np.uint8)  # [N, 8, 8], from 0 to 16
    images = resize_images(np.repeat(grey[..., None], 3, axis=-1), dataset.size)
    generator = np.random.default_rng(dataset.seed)
    test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        test[members[: round(dataset.test_share * len(members))]] = True
    return DataArrays(
        train=Split(images[~test], labels[~test]),
        test=Split(images[test], labels[test]),
        classes=[str(name) for name in content.target_names],
    )


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


def textures(dataset: DrawnData) -> DataArrays:
    """Textures in colour, which share little with handwriting.

    Each image of a class has its own geometry, colours, contrast and noise.
    """
    train, test = np.random.default_rng(dataset.seed).spawn(2)
    return DataArrays(
        _draw_textures(dataset.train_per_class, dataset.size, train),
        _draw_textures(dataset.test_per_class, dataset.size, test),
        list(TEXTURES),
    )


def _draw_textures(per_class: int, size: int, generator: np.random.Generator) -> Split:
    """`per_class` images of each class, class after class."""
    y, x = np.indices((size, size)) / (size - 1) - 0.5
    x, y = (np.broadcast_to(axis, (per_class, size, size)) for axis in (x, y))
    patterns = np.concatenate([texture(generator, x, y) for texture in TEXTURES.values()])
    labels = np.repeat(np.arange(len(TEXTURES)), per_class)
    return Split(_colour(patterns, generator), labels)


def _colour(patterns: Floats, generator: np.random.Generator) -> Images:
    """Patterns [N, H, W] from -1 to 1 in two random colours, with noise: uint8 [N, H, W, 3]."""
    count = len(patterns)
    contrast = generator.uniform(0.3, 0.9, (count, 1, 1, 3))
    darkest = generator.uniform(0, 1 - contrast)
    # one channel may fall where another rises
    direction = generator.choice([-1, 1], (count, 1, 1, 3))
    mixed = darkest + contrast * (0.5 + 0.5 * direction * patterns[..., None])
    noise = generator.uniform(0, 0.06, (count, 1, 1, 1)) * generator.standard_normal(mixed.shape)
    return np.round(255 * (mixed + noise)).clip(0, 255).astype(np.uint8)


def _per_image(generator: np.random.Generator, like: Floats, low: float, high: float) -> Floats:
    """A uniform number for each image, [M, 1, 1]."""
    return generator.uniform(low, high, (len(like), 1, 1))


def _wave(generator: np.random.Generator, u: Floats, low: float, high: float) -> Floats:
    """A wave along `u` of `low` to `high` periods a side, smooth or near to square, any phase."""
    frequency = _per_image(generator, u, low, high)
    phase = _per_image(generator, u, 0, 2 * np.pi)
    sharpness = _per_image(generator, u, 0.5, 4)
    wave = np.sin(2 * np.pi * frequency * u + phase)
    return np.tanh(sharpness * wave) / np.tanh(sharpness)


def _turn(
    generator: np.random.Generator, x: Floats, y: Floats, degrees: Floats | float
) -> tuple[Floats, Floats]:
    """The coordinates turned by `degrees`, give or take 12."""
    angle = np.deg2rad(degrees + _per_image(generator, x, -12, 12))
    return x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)


def _stripes(
    generator: np.random.Generator, x: Floats, y: Floats, degrees: Floats | float
) -> Floats:
    return _wave(generator, _turn(generator, x, y, degrees)[0], 2, 5)


def _diagonal(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    # falling and rising are one class: training flips images from left to right
    return _stripes(generator, x, y, generator.choice([-45, 45], (len(x), 1, 1)))


def _checkerboard(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    u, v = _turn(generator, x, y, 0)
    return _wave(generator, u, 1.5, 3) * _wave(generator, v, 1.5, 3)


def _centred(generator: np.random.Generator, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The coordinates from a random point near the middle."""
    return x - _per_image(generator, x, -0.25, 0.25), y - _per_image(generator, y, -0.25, 0.25)


def _rings(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    return _wave(generator, np.hypot(*_centred(generator, x, y)), 2.5, 5)


def _rays(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    u, v = _centred(generator, x, y)
    count = generator.integers(3, 7, (len(x), 1, 1))
    turn = _per_image(generator, x, 0, 2 * np.pi)
    rays: Floats = np.tanh(2 * np.sin(count * np.arctan2(v, u) + turn))
    return rays


def _dots(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    """Round dots of one radius, scattered: 10 centres in the image and a little beyond."""
    nearest = np.full_like(x, np.inf)
    for _ in range(10):
        u = x - _per_image(generator, x, -0.55, 0.55)
        v = y - _per_image(generator, y, -0.55, 0.55)
        nearest = np.minimum(nearest, np.hypot(u, v))
    radius = _per_image(generator, x, 0.06, 0.12)
    return np.tanh(40 * (radius - nearest))


def _clouds(generator: np.random.Generator, x: Floats, y: Floats) -> Floats:
    """Smooth noise: slow waves in eight random directions, scaled to the range from -1 to 1."""
    total = np.zeros_like(x)
    for _ in range(8):
        across = _per_image(generator, x, -2, 2)
        down = _per_image(generator, x, -2, 2)
        phase = _per_image(generator, x, 0, 2 * np.pi)
        total += np.sin(2 * np.pi * (across * x + down * y) + phase)
    largest: Floats = np.abs(total).max(axis=(1, 2), keepdims=True)
    return total / largest


TEXTURES: dict[str, Texture] = {
    "horizontal stripes": partial(_stripes, degrees=90),
    "vertical stripes": partial(_stripes, degrees=0),
    "diagonal stripes": _diagonal,
    "checkerboard": _checkerboard,
    "dots": _dots,
    "rings": _rings,
    "rays": _rays,
    "clouds": _clouds,
}

# by the `reader` of params.yaml; a function takes its entry there
READERS: dict[str, Callable[..., DataArrays]] = {
    "digits": digits,
    "letters": letters,
    "textures": textures,
}
