"""Pictures with captions: antialiased signed-distance shapes on flat backgrounds."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..common.split import is_held_out

SIZE = 64
COLOURS = {"red": (214, 40, 40), "green": (46, 160, 67), "blue": (40, 90, 220), "yellow": (250, 210, 40),
           "purple": (140, 60, 190), "orange": (245, 130, 30), "cyan": (40, 190, 210), "pink": (250, 120, 180)}
BACKGROUNDS = {"white": (250, 250, 250), "black": (12, 12, 12), "grey": (128, 128, 128)}
SHAPES = ("circle", "square", "triangle", "star")
RELATIONS = ("left of", "right of", "above", "below")
RADII = {"small ": 0.14, "": 0.2, "big ": 0.29}
SYNONYMS = {"circle": ("circle", "circle", "disc", "dot"), "square": ("square", "square", "box"), "grey": ("grey", "grey", "gray")}
PREAMBLES = ("", "", "", "", "a photo of ", "a picture of ", "please draw ", "an image of ")


@dataclass(frozen=True)
class Thing:
    """One shape; centre and radius are fractions of the side."""

    colour: str
    shape: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True)
class Scene:
    """What a picture shows."""

    background: str
    things: tuple[Thing, ...]
    relation: str | None
    caption: str


def distance(shape: str, dx: np.ndarray, dy: np.ndarray, radius: float | np.ndarray) -> np.ndarray:
    """Signed distance of points to the outline, negative inside."""
    x, y = dx / radius, dy / radius
    if shape == "circle":
        d = np.hypot(x, y) - 1
    elif shape == "square":
        d = np.maximum(abs(x), abs(y)) - 0.9
    elif shape == "triangle":
        d = np.maximum(np.maximum(0.866 * x - 0.5 * y - 0.5, -0.866 * x - 0.5 * y - 0.5), y - 0.75)
    else:
        angle, r, part = np.arctan2(x, -y), np.hypot(x, y), 2 * np.pi / 5
        folded = np.abs((angle + part / 2) % part - part / 2)
        d = (r * np.cos(folded) + r * np.sin(folded) * 1.38 - 1.05) * 0.7
    return d * radius


def ground(scene: Scene) -> tuple[int, ...]:
    """Red, green and blue of the background, which is a name or, where no caption tells it, `#` and six digits."""
    return BACKGROUNDS.get(scene.background) or tuple(bytes.fromhex(scene.background[1:]))


def draw(scenes: Sequence[Scene], size: int = SIZE) -> np.ndarray:
    """[B, 3, size, size] in -1…1; things of one shape are drawn together."""
    grid = np.arange(size, dtype=np.float32) + 0.5
    images = np.empty((len(scenes), 3, size, size), np.float32)
    images[:] = np.array([ground(s) for s in scenes], np.float32)[:, :, None, None]
    for layer in range(max((len(s.things) for s in scenes), default=0)):
        for shape in SHAPES:
            rows = [i for i, s in enumerate(scenes) if len(s.things) > layer and s.things[layer].shape == shape]
            if not rows:
                continue
            things = [scenes[i].things[layer] for i in rows]
            x, y, radius = (size * np.array(values, np.float32)[:, None, None] for values in zip(*((t.x, t.y, t.radius) for t in things), strict=True))
            cover = np.clip(0.5 - distance(shape, grid - x, grid[:, None] - y, radius), 0, 1)[:, None]
            images[rows] = images[rows] * (1 - cover) + cover * np.array([COLOURS[t.colour] for t in things], np.float32)[:, :, None, None]
    return images / 127.5 - 1


def _pair(rng: random.Random, held_out: bool | None) -> tuple[str, str]:
    while True:
        pair = rng.choice(list(COLOURS)), rng.choice(SHAPES)
        if held_out is None or is_held_out(f"picture:{pair[0]}/{pair[1]}", 8) == held_out:
            return pair


def _named(rng: random.Random, word: str) -> str:
    return rng.choice(SYNONYMS.get(word, (word,)))


def _one(rng: random.Random, background: str, held_out: bool | None) -> Scene:
    (colour, shape), (size, radius) = _pair(rng, held_out), rng.choice(list(RADII.items()))
    radius *= rng.uniform(0.9, 1.1)
    x, y = (0.5 + rng.uniform(-1, 1) * (0.46 - radius) * 0.9 for _ in "xy")
    text = f"a {size}{colour} {_named(rng, shape)} on a {_named(rng, background)} background"
    if rng.random() < 0.2:
        text = f"{colour} {_named(rng, shape)}, {_named(rng, background)} background"
    return Scene(background, (Thing(colour, shape, x, y, radius),), None, rng.choice(PREAMBLES) + text)


def _two(rng: random.Random, background: str, held_out: bool | None) -> Scene:
    first, second, relation = _pair(rng, held_out), _pair(rng, held_out), rng.choice(RELATIONS)
    near, far, u, v = rng.uniform(0.22, 0.3), rng.uniform(0.7, 0.78), rng.uniform(0.35, 0.65), rng.uniform(0.35, 0.65)
    a, b = {"left of": ((near, u), (far, v)), "right of": ((far, u), (near, v)), "above": ((u, near), (v, far)), "below": ((u, far), (v, near))}[relation]
    things = (Thing(*first, *a, rng.uniform(0.13, 0.19)), Thing(*second, *b, rng.uniform(0.13, 0.19)))
    text = f"a {first[0]} {_named(rng, first[1])} {relation} a {second[0]} {_named(rng, second[1])} on a {_named(rng, background)} background"
    return Scene(background, things, relation, rng.choice(PREAMBLES) + text)


def scene(rng: random.Random, held_out: bool | None = False, pairs: float = 0.4) -> Scene:
    """One thing, or two in a share of `pairs`; `held_out` chooses the side of the (colour, shape) split, None takes both."""
    background = rng.choice(list(BACKGROUNDS))
    return (_two if rng.random() < pairs else _one)(rng, background, held_out)


def unnamed(rng: random.Random) -> Scene:
    """A background of any colour with one thing or none and without a caption, so that pictures from elsewhere keep their colours."""
    background = "#" + rng.randbytes(3).hex()
    things = _one(rng, background, False).things if rng.random() < 0.5 else ()
    return Scene(background, things, None, "")
