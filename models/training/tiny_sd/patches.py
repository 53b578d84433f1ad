"""The picture code: principal components of 8 x 8 patches as one strided and one transposed convolution."""

import random

import numpy as np
import torch
from torch import Tensor, nn

from .pictures import SIZE, draw, scene

PATCH, CHANNELS = 8, 16
CLEAR = -20.0  # log-variance of a code without noise


class PatchCode(nn.Module):
    """`encode` gives mean and log-variance, `decode` the picture; both are linear."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, CHANNELS, PATCH, PATCH)
        self.up = nn.ConvTranspose2d(CHANNELS, 3, PATCH, PATCH)

    def encode(self, picture: Tensor) -> Tensor:
        """[B, 32, h, w]."""
        mean = self.down(picture)
        return torch.cat([mean, torch.full_like(mean, CLEAR)], 1)

    def decode(self, latent: Tensor) -> Tensor:
        """[B, 3, 8h, 8w]."""
        return self.up(latent)


def fit(seed: int = 2, count: int = 1500) -> PatchCode:
    """Solve for the components; each is scaled to unit variance on average."""
    rng = random.Random(seed)
    pictures = np.stack([draw(scene(rng)) for _ in range(count)]).transpose(0, 3, 1, 2)
    side = SIZE // PATCH
    rows = pictures.reshape(count, 3, side, PATCH, side, PATCH).transpose(0, 2, 4, 1, 3, 5).reshape(-1, 3 * PATCH * PATCH).astype(np.float64)
    # One mean per colour, not per pixel of the patch: a transposed convolution has no other bias.
    mean = np.repeat(rows.reshape(-1, 3, PATCH * PATCH).mean((0, 2)), PATCH * PATCH)
    variance, vectors = np.linalg.eigh((rows - mean).T @ (rows - mean) / len(rows))
    basis = vectors[:, ::-1][:, :CHANNELS]
    scale = np.sqrt(np.sqrt(variance[::-1][:CHANNELS]))  # half whitened: large components stay larger
    scale = scale * ((rows - mean) @ basis / scale).std()
    code = PatchCode()
    with torch.no_grad():
        code.down.weight.copy_(torch.from_numpy((basis / scale).T.reshape(CHANNELS, 3, PATCH, PATCH)))
        code.down.bias.copy_(torch.from_numpy(-(mean @ basis) / scale))
        code.up.weight.copy_(torch.from_numpy((basis * scale).T.reshape(CHANNELS, 3, PATCH, PATCH)))
        code.up.bias.copy_(torch.from_numpy(mean.reshape(3, -1).mean(1)))
    return code.eval()
