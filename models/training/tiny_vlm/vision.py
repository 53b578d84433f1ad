"""The vision encoder: a small residual network from ink to the image code."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .code import CELLS, HUES, join, targets
from .drawing import SIDE
from .scenes import KINDS, MOST, View

WIDTHS = (16, 32, 64)
OUTPUTS = (1, len(KINDS), 2)
BORDER = 2  # pixels, of which the colour of the background is taken
FAINT, PLAIN = 0.12, 0.5  # distances from the background from which on a pixel is partly and wholly ink; channels are in -1…1
WINDOWS = (16, 48)  # pixels, in which the ink around a cell gives its colour
SAME = 0.13  # of the side: places that are closer are those of one thing; things are twice as far apart
DOUBTED, CERTAIN = 0.3, 0.5  # shares of a thing up to which it is not there, and from which on it is
COLOUR_INPUTS = 4 * len(WINDOWS) + 3


def _normed(inner: int, outer: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer))


class Residual(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = _normed(width, width), _normed(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.second(F.relu(self.first(x))))


def _border(pixels: Tensor) -> Tensor:
    """The mean colour of the outermost pixels [B, 3]."""
    rows = torch.cat([pixels[:, :, :BORDER], pixels[:, :, -BORDER:]], 2).flatten(2)
    columns = torch.cat([pixels[:, :, :, :BORDER], pixels[:, :, :, -BORDER:]], 3).flatten(2)
    return torch.cat([rows, columns], 2).mean(2)


class Vision(nn.Module):
    """[B, 3, 64, 64] in -1…1 to scores of every cell and of the background.

    Shapes are read from the ink alone, which is where pixels differ from the border, so that a shape is learned once and not in every pair of colours;
    the colour of a cell is read from the mean of the ink around it."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = WIDTHS
        self.body = nn.Sequential(
            _normed(1, first, 2), nn.ReLU(), _normed(first, second, 2), nn.ReLU(), Residual(second),
            _normed(second, third, 2), nn.ReLU(), Residual(third), Residual(third))
        self.cells = nn.Conv2d(third, sum(OUTPUTS), 1)
        self.colours = nn.Sequential(nn.Conv2d(COLOUR_INPUTS, 48, 1), nn.ReLU(), nn.Conv2d(48, len(HUES), 1))
        middle = (torch.arange(CELLS) + 0.5) / CELLS
        self.register_buffer("centres", torch.stack(torch.meshgrid(middle, middle, indexing="xy"), -1), persistent=False)
        self.ground = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, len(HUES)))

    def scores(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Presence, colour, kind and place of cells [B, 8, 8, …], background [B, …]."""
        paper = _border(pixels)
        away = ((pixels - paper[:, :, None, None]).square().sum(1, keepdim=True) + 1e-6).sqrt()
        ink = ((away - FAINT) / (PLAIN - FAINT)).clamp(0, 1)
        presence, kind, place = self.cells(self.body(ink)).permute(0, 2, 3, 1).split(OUTPUTS, -1)
        pools = []
        for window in WINDOWS:
            inked = F.avg_pool2d(torch.cat([ink * pixels, ink], 1), window, SIDE // CELLS, (window - SIDE // CELLS) // 2)
            pools += [inked[:, :3] / (inked[:, 3:] + 1e-3), inked[:, 3:]]
        pools.append(paper[:, :, None, None].expand(-1, -1, CELLS, CELLS))
        colour = self.colours(torch.cat(pools, 1)).permute(0, 2, 3, 1)
        return presence[..., 0], colour, kind, self.centres + 0.25 * place, self.ground(paper)

    def forward(self, pixels: Tensor) -> Tensor:
        """The image code [B, 9, SIZE]."""
        presence, colour, kind, place, ground = self.scores(pixels)
        return join(*found(presence.sigmoid(), colour.softmax(-1), kind.softmax(-1), place), ground.softmax(-1))


def found(presence: Tensor, colour: Tensor, kind: Tensor, place: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(presence, colour, kind, place) of the four likeliest things, from those of cells [B, 8, 8, …]. Cells that name the same place have the same thing: the surest counts, with the mean of all."""
    share = presence.flatten(1)
    classes = torch.cat([colour, kind, place], -1).flatten(1, 2)
    places = classes[..., -2:]
    near = ((places[:, :, None] - places[:, None]).square().sum(-1) < SAME**2).float()
    surest = (near * share[:, None]).amax(2) <= share
    together = near * share[:, None]
    total = together.sum(2)
    best = torch.topk(total * surest, MOST).indices
    mean = (together @ classes / (total[..., None] + 1e-6)).gather(1, best[..., None].expand(-1, -1, classes.shape[2]))
    sure = ((total * surest).gather(1, best) - DOUBTED) / (CERTAIN - DOUBTED)
    return sure.clamp(0, 1), *mean.split((len(HUES), len(KINDS), 2), -1)


def vision_loss(model: Vision, pixels: Tensor, views: Sequence[View]) -> dict[str, Tensor]:
    """Of cells that have a thing, and of the presence of things in all cells."""
    presence, colour, kind, place, ground = targets(views)
    scores = model.scores(pixels)
    weight = presence / presence.sum().clamp(min=1)
    there = presence > 0
    weight = weight[there]

    def classes(said: Tensor, truth: Tensor) -> Tensor:
        return (F.cross_entropy(said[there], truth[there], reduction="none") * weight).sum()

    return {
        "presence": F.binary_cross_entropy_with_logits(scores[0], presence) * 12,
        "colour": classes(scores[1], colour), "kind": classes(scores[2], kind),
        "place": ((scores[3][there] - place[there]).square().sum(-1) * weight).sum() * 20,
        "ground": F.cross_entropy(scores[4], ground) * 0.5,
    }


def to_pixels(images: Sequence[np.ndarray]) -> Tensor:
    """uint8 images as the encoder reads them."""
    return torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image in images]).float() / 127.5 - 1
