"""Whisper's log-mel features for a whole batch, with the augmentations of training."""

import torch
from torch import Tensor
from transformers import WhisperFeatureExtractor

BANDS = 80
RATE, HOP, WINDOW = 16_000, 160, 400
_FILTERS = torch.from_numpy(WhisperFeatureExtractor(feature_size=BANDS).mel_filters).float()
_HANN = torch.hann_window(WINDOW)


def log_mel(waves: Tensor, tilt: Tensor | None = None) -> Tensor:
    """[B, samples] to [B, 80, frames]; equal to WhisperFeatureExtractor when `tilt` is None."""
    spectrum = torch.stft(waves, WINDOW, HOP, window=_HANN, return_complex=True)[..., :-1]
    power = spectrum.real.square() + spectrum.imag.square()
    mel = torch.einsum("bft,fm->bmt", power, _FILTERS).clamp(min=1e-10).log10()
    if tilt is not None:
        mel = mel + tilt[:, None, None] * torch.linspace(-0.5, 0.5, BANDS)[None, :, None]
    mel = torch.maximum(mel, mel.amax((1, 2), keepdim=True) - 8.0)
    return (mel + 4.0) / 4.0


def mask(mel: Tensor, generator: torch.Generator) -> Tensor:
    """SpecAugment: one strip of bands and one of frames per clip."""
    rows, _, frames = mel.shape

    def draw(high: int) -> int:
        return int(torch.randint(0, high, (1,), generator=generator))

    for row in range(rows):
        band, width = draw(BANDS - 8), draw(9)
        mel[row, band : band + width] = mel[row].min()
        start, length = draw(frames - 20), draw(20)
        mel[row, :, start : start + length] = mel[row].min()
    return mel
