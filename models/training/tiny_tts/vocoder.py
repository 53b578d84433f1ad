"""A source and two filters: pulses at the pitch and noise, both shaped frame by frame.

A frame of the source (a Hann window of two hops) is transformed to its spectrum, multiplied by a smooth positive response,
transformed back and added to its neighbours.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from ..tiny_whisper.voices import RATE
from .reference import HOP

WINDOW, SIZE = 2 * HOP, 3 * HOP
BINS = SIZE // 2 + 1
HIGHEST = 7600.0  # Hz of the highest harmonic
NOISE = 16_384  # samples of noise, which repeats
TONE_BANDS = [*range(0, 4000, 100), *range(4000, 8001, 400)]
NOISE_BANDS = [*range(0, 4000, 400), *range(4000, 8001, 500)]


def _interpolation(bands: Tensor) -> Tensor:
    """[bands, bins]: from values at frequencies that rise from zero to values at all bins."""
    frequencies = torch.arange(BINS, device=bands.device) * (RATE / SIZE)
    before, after = torch.cat([bands[:1] - 1, bands[:-1]]), torch.cat([bands[1:], bands[-1:] + 1])
    rise = (frequencies - before[:, None]) / (bands - before)[:, None]
    fall = (after[:, None] - frequencies) / (after - bands)[:, None]
    return torch.minimum(rise, fall).clamp(min=0)


class Vocoder(nn.Module):
    """Pitch and the logarithms of both responses to samples."""

    def __init__(self) -> None:
        super().__init__()
        noise = np.random.RandomState(7).uniform(-math.sqrt(3), math.sqrt(3), NOISE)
        self.register_buffer("noise", torch.from_numpy(noise.astype(np.float16).astype(np.float32)))
        self.register_buffer("tones", torch.tensor(TONE_BANDS).float())
        self.register_buffer("hisses", torch.tensor(NOISE_BANDS).float())
        self.register_buffer("window", torch.hann_window(2 * WINDOW)[1::2])

    def transform(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """[..., SIZE] to the real and the imaginary part of its spectrum [..., BINS]."""
        spectrum = torch.fft.rfft(frames)
        return spectrum.real, spectrum.imag

    def back(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """The inverse of `transform`."""
        return torch.fft.irfft(torch.complex(real, imaginary), SIZE)

    def pulses(self, hertz: Tensor) -> Tensor:
        """[B, T] to [B, T * HOP]: all harmonics up to the highest, with the power of one."""
        steps = nn.functional.interpolate(hertz[:, None], scale_factor=float(HOP), mode="linear", align_corners=False)[:, 0]
        turns = (steps.double() / RATE).cumsum(1)
        phase = ((turns - turns.floor()) * (2 * math.pi)).float()
        harmonics = (HIGHEST / steps).floor()
        half = (phase / 2).sin()
        near = half.abs() < 1e-4
        ratio = ((harmonics + 0.5) * phase).sin() / (2 * torch.where(near, torch.ones_like(half), half))
        train = torch.where(near, harmonics, ratio - 0.5)
        return train * (2 / harmonics).sqrt()

    def spectra(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Of [B, T * HOP], in windows around the middle of each frame."""
        rows, samples = source.shape
        pad = nn.functional.pad
        blocks = pad(source, (HOP // 2, HOP // 2)).reshape(rows, samples // HOP + 1, HOP)
        frames = torch.cat([blocks[:, :-1], blocks[:, 1:]], 2) * self.window
        return self.transform(pad(frames, (HOP // 2, HOP // 2)))

    def together(self, real: Tensor, imaginary: Tensor) -> Tensor:
        """The samples of the frames with these spectra, added where they overlap."""
        pad, frames = nn.functional.pad, self.back(real, imaginary)
        before, here, after = (frames[..., HOP * part : HOP * (part + 1)] for part in range(3))
        blocks = pad(before, (0, 0, 0, 2)) + pad(here, (0, 0, 1, 1)) + pad(after, (0, 0, 2, 0))
        return blocks[:, 1:-1].flatten(1)

    def forward(self, hertz: Tensor, tone: Tensor, hiss: Tensor, loudness: Tensor | float = 1.0) -> Tensor:
        """Hertz [B, T], responses [B, T, bands] as logarithms, and how loud the noise is."""
        at = torch.arange(hertz.shape[1] * HOP, device=hertz.device) % NOISE
        real, imaginary = self.spectra(torch.cat([self.pulses(hertz), self.noise[at][None] * loudness]))
        rise, blow = (tone @ _interpolation(self.tones)).exp(), (hiss @ _interpolation(self.hisses)).exp()
        return self.together(real[:-1] * rise + real[-1:] * blow, imaginary[:-1] * rise + imaginary[-1:] * blow)
