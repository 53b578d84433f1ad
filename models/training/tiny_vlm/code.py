"""The image code: tokens of the whole image and of each thing in it, which the vision encoder finds and the decoder reads."""

import random
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from .scenes import KINDS, MOST, PALETTE, View

CELLS = 8  # per side, in which the encoder looks for things; two things are never in one
TOKENS = 3  # per side: one of the image, four of its things from left to right, and four of the same from top to bottom
HUES = list(PALETTE)
THING = 1 + len(HUES) + len(KINDS) + 2  # presence, colour, kind, place
SIZE = THING + MOST + 1 + len(HUES)  # and the number of things and the background, in the first token alone
ZONE = 0.16  # of a cell, near whose border a thing belongs to two cells
ABSENT = 10.0  # added to the place of what is not there, so that it is sorted behind everything


def _shares(place: float) -> list[tuple[int, float]]:
    """The cells of a coordinate with their shares, which pass from one to the next around a border."""
    at = min(max(place * CELLS, 0.0), CELLS - 1e-4)
    cell, within = int(at), at - int(at)
    for side, away in ((-1, within), (1, 1 - within)):
        if away < ZONE and 0 <= cell + side < CELLS:
            other = 0.5 * (1 - away / ZONE)
            return [(cell, 1 - other), (cell + side, other)]
    return [(cell, 1.0)]


def targets(views: Sequence[View]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(presence, colour, kind, place, background): [B, 8, 8] each, place with two more, background [B]."""
    rows = len(views)
    presence = np.zeros((rows, CELLS, CELLS), np.float32)
    colour, kind = np.zeros((2, rows, CELLS, CELLS), np.int64)
    place = np.zeros((rows, CELLS, CELLS, 2), np.float32)
    for row, view in enumerate(views):
        for thing in view.things:
            for x, share_x in _shares(thing.x):
                for y, share_y in _shares(thing.y):
                    at = row, y, x
                    presence[at] = share_x * share_y
                    colour[at], kind[at] = HUES.index(thing.colour), KINDS.index(thing.shape)
                    place[at] = thing.x, thing.y
    ground = torch.tensor([HUES.index(view.background) for view in views])
    return torch.from_numpy(presence), torch.from_numpy(colour), torch.from_numpy(kind), torch.from_numpy(place), ground


def join(presence: Tensor, colour: Tensor, kind: Tensor, place: Tensor, ground: Tensor) -> Tensor:
    """[B, 9, SIZE] from up to four things [B, 4, …] in any order, and the background [B, …]."""
    thing = torch.cat([torch.ones_like(presence)[..., None], colour, kind, 2 * place - 1], -1) * presence[..., None]
    sorted_ = []
    for axis in range(2):
        order = torch.topk(-(place[..., axis] + ABSENT * (1 - presence)), MOST).indices
        sorted_.append(thing.gather(1, order[..., None].expand(-1, -1, THING)))
    things = F.pad(torch.cat(sorted_, 1), (0, SIZE - THING))
    number = (1 - (presence.sum(1, keepdim=True) - torch.arange(MOST + 1)).abs()).clamp(min=0)
    whole = F.pad(torch.cat([number, ground], -1), (THING, 0))
    return torch.cat([whole[:, None], things], 1)


def true_code(views: Sequence[View], rng: random.Random) -> Tensor:
    """The code of views with the doubts that an encoder has."""
    rows, noise = len(views), torch.Generator().manual_seed(rng.getrandbits(62))
    presence, place = torch.zeros(rows, MOST), torch.zeros(rows, MOST, 2)
    colour, kind = torch.zeros(2, rows, MOST, dtype=torch.long)
    for row, view in enumerate(views):
        for at, thing in enumerate(view.things):
            presence[row, at], colour[row, at], kind[row, at] = 1, HUES.index(thing.colour), KINDS.index(thing.shape)
            place[row, at] = torch.tensor([thing.x, thing.y])

    def doubt(one: Tensor, classes: int) -> Tensor:
        share = torch.rand(one.shape, generator=noise)[..., None]
        other = F.one_hot(torch.randint(classes, one.shape, generator=noise), classes)
        share = torch.where(share < 0.1, share * 4, 0.02 * share)
        return F.one_hot(one, classes) * (1 - share) + other * share

    place = place + 0.012 * torch.randn(place.shape, generator=noise)
    ground = torch.tensor([HUES.index(view.background) for view in views])
    return join(presence, doubt(colour, len(HUES)), doubt(kind, len(KINDS)), place, doubt(ground, len(HUES)))
