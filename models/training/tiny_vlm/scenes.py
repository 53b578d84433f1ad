"""What images show: one to four things of tiny-sd's shapes, or one digit, on one colour."""

import random
from dataclasses import dataclass

from ..common.split import is_held_out
from ..tiny_sd.pictures import BACKGROUNDS, COLOURS, RADII, SHAPES, Thing

PALETTE = {**COLOURS, **BACKGROUNDS}
DIGITS = tuple("0123456789")
KINDS = (*SHAPES, *DIGITS)  # what a thing can be
MOST = 4
# Colours that are hard to tell from each other are not put on each other.
CLOSE = [{"red", "orange"}, {"red", "pink"}, {"orange", "yellow"}, {"blue", "cyan"}, {"pink", "orange"}, {"purple", "blue"}, {"purple", "pink"}, {"purple", "grey"},
         {"green", "grey"}, {"cyan", "green"}, {"white", "yellow"}, {"cyan", "grey"}]


@dataclass(frozen=True)
class View:
    """The contents of one image."""

    background: str
    things: tuple[Thing, ...]

    @property
    def digit(self) -> str | None:
        """The digit, where it shows one."""
        return self.things[0].shape if self.things and self.things[0].shape in DIGITS else None


def is_held_out_pair(colour: str, kind: str) -> bool:
    """One in eight pairs of colour and shape never occurs in training; for shapes they are those of tiny-sd."""
    return is_held_out(f"picture:{colour}/{kind}", 8)


def _background(rng: random.Random) -> str:
    return rng.choice(list(BACKGROUNDS)) if rng.random() < 0.75 else rng.choice(list(COLOURS))


def _visible(colour: str, background: str) -> bool:
    return colour != background and {colour, background} not in CLOSE


def _pair(rng: random.Random, kinds: tuple[str, ...], colours: list[str], background: str, held_out: bool | None) -> tuple[str, str]:
    for _ in range(400):
        colour, kind = rng.choice(colours), rng.choice(kinds)
        if _visible(colour, background) and (held_out is None or is_held_out_pair(colour, kind) == held_out):
            return colour, kind
    raise LookupError(background)


def _digit(rng: random.Random, background: str, held_out: bool | None) -> View:
    colour, kind = _pair(rng, DIGITS, list(PALETTE), background, held_out)
    radius = rng.uniform(0.2, 0.42)
    x, y = (0.5 + rng.uniform(-1, 1) * (0.47 - radius) for _ in "xy")
    return View(background, (Thing(colour, kind, x, y, radius),))


def _places(rng: random.Random, count: int) -> list[tuple[float, float, float]]:
    """Centres and radii that do not touch."""
    if count == 1:
        radius = rng.choice(list(RADII.values())) * rng.uniform(0.85, 1.15)
        x, y = (0.5 + rng.uniform(-1, 1) * (0.47 - radius) for _ in "xy")
        return [(x, y, radius)]
    while True:
        places: list[tuple[float, float, float]] = []
        for _ in range(30 * count):
            radius = rng.uniform(0.115, 0.195 - 0.014 * count)
            x, y = (rng.uniform(radius + 0.03, 0.97 - radius) for _ in "xy")
            if all(((x - a) ** 2 + (y - b) ** 2) ** 0.5 > 1.2 * (radius + c) for a, b, c in places):
                places.append((x, y, radius))
            if len(places) == count:
                return places


def shapes_view(rng: random.Random, count: int, held_out: bool | None) -> View:
    """`held_out` chooses the side of the split for every thing in training, and for the first one in evaluations."""
    background = _background(rng)
    places = _places(rng, count)
    try:
        pairs = [_pair(rng, SHAPES, list(COLOURS), background, None if held_out and at else held_out) for at in range(count)]
    except LookupError:
        return shapes_view(rng, count, held_out)
    if rng.random() < 0.25 and not held_out:  # several of one colour or one shape, for counts
        pairs = [(pairs[0][0], kind) if is_held_out_pair(pairs[0][0], kind) is not True else pairs[0] for _, kind in pairs]
    return View(background, tuple(Thing(*pair, *place) for pair, place in zip(pairs, places, strict=True)))


def digit_view(rng: random.Random, held_out: bool | None) -> View:
    """One digit in any colour that its background leaves visible."""
    while True:
        try:
            return _digit(rng, _background(rng), held_out)
        except LookupError:
            continue


def view(rng: random.Random, held_out: bool | None = False, digits: float = 0.18) -> View:
    """A digit in a share of `digits`, else shapes; rarely nothing."""
    draw = rng.random()
    if draw < digits:
        return digit_view(rng, held_out)
    if draw < digits + 0.02:
        return View(_background(rng), ())
    return shapes_view(rng, rng.choices(range(1, MOST + 1), (2, 4, 4, 4))[0], held_out)
