"""The picture code: eight by eight cells of which each tells what is near it, and the two small networks that read and draw it.

The code is not discovered but taught. A cell near a thing holds its presence, colour, shape, place as seen from the cell and radius;
every cell holds the background. In principal components a shape is a faint pattern of edges that the U-Net learns last; here it is as
loud as a colour, and drawing sharp edges is the decoder's work.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from .pictures import COLOURS, SHAPES, SIZE, Scene, Thing, ground

CELL = 8  # pixels a side
SIDE = SIZE // CELL
CHANNELS = 10 + len(SHAPES)
CLEAR = -20.0  # log-variance of a code without noise
# Colour of the background, presence, colour of the thing, shapes, across, down, radius: about equally loud when averaged over pictures.
LOUDNESS = np.array([0.7, 0.7, 0.7, 1.5, 1.7, 1.7, 1.7, *[2.5] * len(SHAPES), 2, 2, 1.7], np.float32)
INNER, WIDE = 96, 512  # each of the wide units is a border that some pixels of a cell may have


class Residual(nn.Module):
    """Two convolutions beside a straight way."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.first(x)))


class PictureCode(nn.Module):
    """`read` gives the code of a picture, `decode` the picture of a code."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = nn.ModuleDict({
            "conv_in": nn.Conv2d(3, INNER, CELL, CELL), "body": nn.Sequential(*[Residual(INNER) for _ in range(3)]), "conv_out": nn.Conv2d(INNER, CHANNELS, 1)})
        self.painter = nn.ModuleDict({
            "conv_in": nn.Conv2d(CHANNELS, INNER, 3, padding=1), "body": nn.Sequential(*[Residual(INNER) for _ in range(3)]),
            "wide": nn.Conv2d(INNER, WIDE, 1), "conv_out": nn.ConvTranspose2d(WIDE, 7, CELL, CELL)})

    def read(self, picture: Tensor) -> Tensor:
        """[B, CHANNELS, h, w]."""
        return self.reader["conv_out"](torch.relu(self.reader["body"](torch.relu(self.reader["conv_in"](picture)))))

    def decode(self, latent: Tensor) -> Tensor:
        """[B, 3, 8h, 8w]: two colours mixed by a mask, as a flat thing on a flat ground is."""
        x = torch.relu(self.painter["wide"](torch.relu(self.painter["body"](self.painter["conv_in"](latent)))))
        mask, plain, thing = self.painter["conv_out"](x).split((1, 3, 3), 1)
        return plain + torch.sigmoid(mask) * (thing - plain)


def _describe(thing: Thing) -> list[float]:
    """What all cells near a thing say of it, without its place."""
    return [1, *(value / 127.5 - 1 for value in COLOURS[thing.colour]), *(float(shape == thing.shape) for shape in SHAPES), (thing.radius * SIZE - 13) / 4]


def code_of(scenes: Sequence[Scene]) -> Tensor:
    """The code [B, CHANNELS, h, w] that pictures of these scenes should have."""
    centre = (np.arange(SIDE, dtype=np.float32) + 0.5) * CELL
    codes = np.zeros((len(scenes), CHANNELS, SIDE, SIDE), np.float32)
    codes[:, :3] = np.array([ground(s) for s in scenes])[:, :, None, None] / 127.5 - 1
    for index, scene in enumerate(scenes):
        across = [centre[None, :] - t.x * SIZE for t in scene.things]
        down = [centre[:, None] - t.y * SIZE for t in scene.things]
        distances = [np.hypot(x, y) for x, y in zip(across, down, strict=True)]
        for k, thing in enumerate(scene.things):
            near = np.clip((1.25 * thing.radius * SIZE + 6 - distances[k]) / 6, 0, 1)
            for other in distances[:k] + distances[k + 1 :]:
                near = near * np.clip(0.5 + (other - distances[k]) / CELL, 0, 1)
            said = _describe(thing)
            codes[index, 3:-3] += near * np.array(said[:-1], np.float32)[:, None, None]
            codes[index, -3:] += near * np.stack([across[k] / 16 + 0 * near, down[k] / 16 + 0 * near, said[-1] + 0 * near])
    return torch.from_numpy(codes * LOUDNESS[:, None, None])


def code_loss(code: PictureCode, pictures: Tensor, wanted: Tensor, read: int) -> Tensor:
    """Drawing is right when a code that is a little wrong gives the picture, reading when the first `read` pictures give the wanted code."""
    rows = len(wanted)
    loudness = 1 + 0.15 * torch.randn(rows, CHANNELS, 1, 1)
    wrong = wanted * loudness + 0.3 * torch.rand(rows, 1, 1, 1) * torch.randn_like(wanted)
    return (code.decode(wrong) - pictures).abs().mean() + (code.read(pictures[:read]) - wanted[:read]).square().mean()
