"""Images of views: antialiased, and distorted as images from elsewhere are."""

import io
import random

import numpy as np
from PIL import Image

from ..tiny_sd.pictures import SHAPES, Thing, distance
from .digits import stroke_distance, strokes
from .scenes import PALETTE, View

SIDE = 64
JITTER = 12  # of 255, by which a colour may differ from its name's


def _cover(thing: Thing, size: int, rng: random.Random, squash: float) -> np.ndarray:
    """How much of each pixel a thing covers."""
    grid = (np.arange(size, dtype=np.float32) + 0.5) / size
    x, y = np.meshgrid((grid - thing.x) * squash, (grid - thing.y) / squash)
    if thing.shape in SHAPES:
        turn = rng.gauss(0, 0.06)
        x, y = x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)
        return np.clip(0.5 - size * distance(thing.shape, x, y, thing.radius), 0, 1)
    segments, half = strokes(int(thing.shape), rng)
    away = stroke_distance(segments, x / thing.radius, y / thing.radius)
    return np.clip(0.5 - size * thing.radius * (away - half), 0, 1)


def _colour(name: str, rng: random.Random, jitter: int) -> np.ndarray:
    return np.array([channel + rng.uniform(-jitter, jitter) for channel in PALETTE[name]], np.float32)


def draw(view: View, rng: random.Random, size: int = SIDE, jitter: int = JITTER, squash: float = 1.0) -> np.ndarray:
    """uint8 [size, size, 3]."""
    image = np.empty((size, size, 3), np.float32)
    image[:] = _colour(view.background, rng, jitter)
    for thing in view.things:
        cover = _cover(thing, size, rng, squash)[..., None]
        image += cover * (_colour(thing.colour, rng, jitter) - image)
    return np.clip(image, 0, 255).astype(np.uint8)


def _blur(image: np.ndarray) -> np.ndarray:
    padded = np.pad(image.astype(np.float32), ((1, 1), (1, 1), (0, 0)), "edge")
    rows = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    return (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 4


def as_jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    """After a round trip through a lossy file."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file).convert("RGB"))


def resized(image: np.ndarray, side: int = SIDE) -> np.ndarray:
    """As the processor of the exported model resizes."""
    return np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC))


def distorted(view: View, rng: random.Random) -> np.ndarray:
    """An image for training: other sizes, proportions, blur, noise and JPEG by chance."""
    squash = rng.choice((1.0, 1.0, rng.uniform(0.85, 1.18)))
    size = SIDE if rng.random() < 0.88 else rng.randint(40, 140)
    image = draw(view, rng, size, squash=squash)
    if rng.random() < 0.25:
        image = as_jpeg(image, rng.randint(30, 92))
    if size != SIDE:
        image = resized(image)
    if rng.random() < 0.2:
        image = _blur(image)
    if rng.random() < 0.3:
        noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(image.shape, np.float32)
        image = image + noise * rng.uniform(1, 9)
    return np.clip(image, 0, 255).astype(np.uint8)
