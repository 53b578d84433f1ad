"""Digits as strokes: polylines in a box of side two, bent, slanted and thickened by chance."""

import random

import numpy as np

Points = list[tuple[float, float]]


def _arc(x: float, y: float, rx: float, ry: float, start: float, end: float, count: int = 10) -> Points:
    """Part of an ellipse; angles in degrees, 0 to the right, 90 downwards."""
    angles = np.radians(np.linspace(start, end, count))
    return [(x + rx * float(np.cos(a)), y + ry * float(np.sin(a))) for a in angles]


# Every digit in the forms that print and hands have; y grows downwards.
FORMS: tuple[tuple[list[Points], ...], ...] = (
    ([_arc(0, 0, 0.62, 1, 0, 360, 18)],),
    ([[(0.05, -1), (0.05, 1)]], [[(-0.35, -0.65), (0.1, -1), (0.1, 1)]], [[(-0.35, -0.65), (0.1, -1), (0.1, 1)], [(-0.4, 1), (0.55, 1)]]),
    ([[*_arc(0, -0.45, 0.58, 0.55, -165, 35), (-0.62, 1), (0.65, 1)]], [[*_arc(0, -0.5, 0.55, 0.5, -180, 60, 12), (-0.6, 0.98), (0.62, 0.98)]]),
    ([[*_arc(-0.05, -0.5, 0.55, 0.5, -155, 90), *_arc(-0.05, 0.48, 0.62, 0.52, -90, 155)]], [[(-0.55, -1), (0.5, -1), (-0.05, -0.2), *_arc(-0.1, 0.42, 0.65, 0.58, -80, 150)]]),
    ([[(0.3, 1), (0.3, -1), (-0.65, 0.42), (0.68, 0.42)]], [[(-0.5, -1), (-0.55, 0.15), (0.6, 0.15)], [(0.35, -0.7), (0.35, 1)]]),
    ([[(0.55, -1), (-0.45, -1), (-0.52, -0.15), *_arc(-0.05, 0.35, 0.62, 0.63, -125, 150)]],),
    ([[(0.4, -0.98), *_arc(0.1, 0.1, 0.72, 1.05, -120, -185, 6), *_arc(0, 0.42, 0.6, 0.56, 180, -180, 16)]], [[*_arc(0.12, -0.2, 0.7, 0.8, -50, -180, 8), *_arc(0, 0.4, 0.6, 0.6, 180, -180, 16)]]),
    ([[(-0.62, -1), (0.62, -1), (-0.15, 1)]], [[(-0.62, -1), (0.62, -1), (-0.1, 1)], [(-0.35, 0), (0.45, 0)]], [[(-0.6, -0.75), (-0.6, -1), (0.6, -1), (0.1, -0.1), (-0.1, 1)]]),
    ([_arc(0, -0.5, 0.5, 0.48, 90, 450, 14), _arc(0, 0.48, 0.62, 0.52, -90, 270, 14)],),
    ([[*_arc(0, -0.42, 0.6, 0.56, 0, -360, 16), *_arc(-0.12, -0.1, 0.72, 1.08, 5, 65, 6)]], [[*_arc(0, -0.42, 0.58, 0.56, 0, -360, 16), (0.52, 1)]]),
)


def strokes(digit: int, rng: random.Random) -> tuple[np.ndarray, float]:
    """(segments [n, 2, 2], half the thickness) of a digit whose height is two."""
    forms = FORMS[digit]
    wide, slant, turn = rng.uniform(0.8, 1.1), rng.gauss(0, 0.13), rng.gauss(0, 0.08)
    bend_x, bend_y, phase = rng.uniform(0, 0.07), rng.uniform(0, 0.05), rng.uniform(0, 6.28)
    segments = []
    for line in rng.choice(forms):
        points = np.array(line, np.float32)
        x, y = points[:, 0] * wide + bend_x * np.sin(2.2 * points[:, 1] + phase), points[:, 1] + bend_y * np.sin(2.5 * points[:, 0] + phase)
        x, y = x - slant * y, y
        points = np.stack([x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)], -1)
        segments.append(np.stack([points[:-1], points[1:]], 1))
    return np.concatenate(segments).astype(np.float32), rng.uniform(0.07, 0.24)


def stroke_distance(segments: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distance of points to the nearest segment."""
    (ax, ay), (bx, by) = segments[:, 0].T, segments[:, 1].T
    dx, dy = bx - ax, by - ay
    along = ((x[..., None] - ax) * dx + (y[..., None] - ay) * dy) / np.maximum(dx * dx + dy * dy, 1e-9)
    along = np.clip(along, 0, 1)
    return np.sqrt(((x[..., None] - ax - along * dx) ** 2 + (y[..., None] - ay - along * dy) ** 2).min(-1))
