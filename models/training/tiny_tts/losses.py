"""How far speech is from its reference: log-mel spectra with windows of three lengths."""

import torch
from torch import Tensor, nn
from transformers.audio_utils import mel_filter_bank

from ..tiny_whisper.voices import RATE

RESOLUTIONS = ((1024, 80), (512, 64), (256, 32))  # samples of a window, bands
FLOOR = 1e-3


class SpectralLoss(nn.Module):
    """The mean absolute difference of the logarithms."""

    def __init__(self) -> None:
        super().__init__()
        for window, bands in RESOLUTIONS:
            filters = mel_filter_bank(window // 2 + 1, bands, 0.0, RATE / 2, RATE, norm=None, mel_scale="slaney")
            self.register_buffer(f"filters{window}", torch.from_numpy(filters).float(), persistent=False)
            self.register_buffer(f"window{window}", torch.hann_window(window), persistent=False)

    def _log_mel(self, wave: Tensor, window: int) -> Tensor:
        spectrum = torch.stft(wave, window, window // 4, window=self.get_buffer(f"window{window}"), return_complex=True)
        power = (spectrum.real.square() + spectrum.imag.square()) / window
        return (power.transpose(1, 2) @ self.get_buffer(f"filters{window}") + FLOOR).log()

    def forward(self, made: Tensor, wanted: Tensor, share: Tensor) -> Tensor:
        """Of batches [B, N] that are zero after their end; `share` of their samples is speech."""
        differences = [(self._log_mel(made, window) - self._log_mel(wanted, window)).abs().mean() for window, _ in RESOLUTIONS]
        return torch.stack(differences).mean() / share
