"""Reads a picture without a model: background by its border, things by colour and template overlap."""

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from .pictures import BACKGROUNDS, COLOURS, SHAPES, Scene, distance

NAMES = [*BACKGROUNDS, *COLOURS]
PALETTE = np.array([*BACKGROUNDS.values(), *COLOURS.values()], np.float32)


@dataclass(frozen=True)
class Blob:
    """A connected region of one colour."""

    colour: str
    shape: str
    x: float
    y: float


def _unit(shape: str) -> tuple[float, float, float]:
    """(area, centre x, centre y) of a shape of radius one."""
    rows, columns = np.mgrid[-1.6:1.6:320j, -1.6:1.6:320j]
    inside = distance(shape, columns, rows, 1.0) < 0
    return inside.sum() * (3.2 / 319) ** 2, columns[inside].mean(), rows[inside].mean()


UNITS = {shape: _unit(shape) for shape in SHAPES}


def _shape(region: np.ndarray) -> str:
    """The template of equal area and centre with the best overlap; none below 0.7."""
    size, area = region.shape[0], region.sum()
    rows, columns = np.mgrid[0:size, 0:size]
    ys, xs = np.where(region)
    best, name = 0.7, "?"
    for shape, (unit, offset_x, offset_y) in UNITS.items():
        radius = np.sqrt(area / unit)
        template = distance(shape, columns - (xs.mean() - offset_x * radius), rows - (ys.mean() - offset_y * radius), radius) < 0
        overlap = (template & region).sum() / (template | region).sum()
        if overlap > best:
            best, name = overlap, shape
    return name


def read(image: np.ndarray) -> tuple[str, list[Blob]]:
    """Background name and things of a uint8 picture."""
    labels = ((image.astype(np.float32)[:, :, None] - PALETTE) ** 2).sum(-1).argmin(-1)
    border = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    ground = int(np.bincount(border, minlength=len(NAMES)).argmax())
    regions, count = ndimage.label(ndimage.binary_opening(labels != ground))
    size, blobs = image.shape[0], []
    for index in range(1, count + 1):
        region = regions == index
        if region.sum() < size * size * 0.012:
            continue
        core = ndimage.binary_erosion(region)
        votes = np.bincount(labels[core if core.any() else region], minlength=len(NAMES))
        colour = NAMES[len(BACKGROUNDS) + int(votes[len(BACKGROUNDS) :].argmax())]
        ys, xs = np.where(region)
        blobs.append(Blob(colour, _shape(region), xs.mean() / size, ys.mean() / size))
    return NAMES[ground], blobs


def compare(image: np.ndarray, wanted: Scene) -> dict[str, bool]:
    """Which properties of the scene the picture has; relation only where the scene has one."""
    ground, blobs = read(image)
    pairs, asked = [(b.colour, b.shape) for b in blobs], [(t.colour, t.shape) for t in wanted.things]
    found = {
        "background": ground == wanted.background, "count": len(blobs) == len(wanted.things),
        "colour": sorted(c for c, _ in pairs) == sorted(c for c, _ in asked), "shape": sorted(s for _, s in pairs) == sorted(s for _, s in asked),
    }
    if wanted.relation is None:
        return found
    first = [b for b in blobs if b.colour == asked[0][0]]
    second = [b for b in blobs if b.colour == asked[1][0] and b not in first[:1]]
    if not first or not second:
        return {**found, "relation": False}
    a, b = first[0], second[0]
    before = a.x < b.x if wanted.relation in ("left of", "right of") else a.y < b.y
    return {**found, "relation": before == (wanted.relation in ("left of", "above")) or asked[0][0] == asked[1][0]}
