"""What a caption says, as questions that the pooled text must answer: without them the U-Net takes a caption for a bag of words."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .pictures import BACKGROUNDS, COLOURS, SHAPES, Scene

# Background, arrangement (one, beside, below), size, then colour and shape of the thing at the left or top and of the other one.
CHOICES = (len(BACKGROUNDS), 3, 4, len(COLOURS), len(SHAPES), len(COLOURS) + 1, len(SHAPES) + 1)
UNASKED = -100


def _answers(scene: Scene) -> list[int]:
    if not scene.caption:
        return [UNASKED] * len(CHOICES)
    colours, shapes = list(COLOURS), list(SHAPES)
    ground = list(BACKGROUNDS).index(scene.background)
    if scene.relation is None:
        (thing,) = scene.things
        size = sum(thing.radius > limit for limit in (0.17, 0.24))
        return [ground, 0, size, colours.index(thing.colour), shapes.index(thing.shape), len(colours), len(shapes)]
    beside = scene.relation in ("left of", "right of")
    first, second = sorted(scene.things, key=lambda t: t.x if beside else t.y)
    return [ground, 1 if beside else 2, 3, *(at for t in (first, second) for at in (colours.index(t.colour), shapes.index(t.shape)))]


def caption_loss(answers: Tensor, scenes: Sequence[Scene]) -> Tensor:
    """Mean cross-entropy of all questions; `answers` are [B, sum of CHOICES] scores."""
    wanted = torch.tensor([_answers(s) for s in scenes])
    parts = answers.float().split(CHOICES, 1)
    return torch.stack([functional.cross_entropy(part, wanted[:, at], ignore_index=UNASKED) for at, part in enumerate(parts)]).mean()
