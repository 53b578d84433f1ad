"""Letters to frames: convolutions over letters, a length for each, convolutions over frames, and the vocoder."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .letters import SYMBOLS
from .reference import VOICES
from .vocoder import NOISE_BANDS, TONE_BANDS, Vocoder

LETTER_WIDTH, FRAME_WIDTH = 160, 192
LETTER_BLOCKS, FRAME_BLOCKS = 4, 5
MIDDLE = 160.0  # Hz
QUIET = -5.0  # the first responses, as logarithms


class Block(nn.Module):
    """A convolution in each channel, then two layers across channels (ConvNeXt)."""

    def __init__(self, width: int, reach: int, inner: int) -> None:
        super().__init__()
        self.along = nn.Conv1d(width, width, reach, padding=reach // 2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.rise, self.fall = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        near = self.along((x * mask).transpose(1, 2)).transpose(1, 2)
        return x + self.fall(nn.functional.gelu(self.rise(self.norm(near))))


@dataclass(frozen=True)
class Spoken:
    """What is said frame by frame."""

    hertz: Tensor
    tone: Tensor
    hiss: Tensor


class Reader(nn.Module):
    """Token ids [B, L] to states, with a mean over the whole sentence, which distinguishes its language."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.voices = nn.Embedding(len(SYMBOLS), LETTER_WIDTH), nn.Embedding(len(VOICES), LETTER_WIDTH)
        self.blocks = nn.ModuleList(Block(LETTER_WIDTH, 7, 2 * LETTER_WIDTH) for _ in range(LETTER_BLOCKS))
        self.whole = nn.Linear(LETTER_WIDTH, LETTER_WIDTH)
        self.norm = nn.LayerNorm(LETTER_WIDTH)
        self.length = nn.Sequential(nn.Linear(LETTER_WIDTH, LETTER_WIDTH), nn.GELU(), nn.Linear(LETTER_WIDTH, 1))

    def forward(self, ids: Tensor, voice: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """States, and the logarithm of one more than the frames of each token."""
        x = self.letters(ids) + self.voices(voice)[:, None]
        for index, block in enumerate(self.blocks):
            x = block(x, mask)
            if index == LETTER_BLOCKS // 2 - 1:
                mean = (x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
                x = x + self.whole(mean)
        x = self.norm(x)
        return x, self.length(x)[..., 0]


def places(ends: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
    """The token of each frame [B, T], and how far it is within it: share passed, frames passed and frames to come."""
    index = (ends[:, None, :] <= frames[None, :, None] + 0.5).sum(2).clamp(max=ends.shape[1] - 1)
    starts = nn.functional.pad(ends[:, :-1], (1, 0))
    first, last = starts.gather(1, index), ends.gather(1, index)
    passed, left = frames[None] + 0.5 - first, last - frames[None] - 0.5
    share = passed / (passed + left).clamp(min=1.0)
    return index, torch.stack([share, (passed / 8).clamp(-1, 2), (left / 8).clamp(-1, 2)], 2)


class Speaker(nn.Module):
    """States of tokens and where they end to what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.place = nn.Linear(LETTER_WIDTH, FRAME_WIDTH), nn.Linear(3, FRAME_WIDTH)
        self.voices = nn.Embedding(len(VOICES), FRAME_WIDTH)
        self.blocks = nn.ModuleList(Block(FRAME_WIDTH, 7, 5 * FRAME_WIDTH // 2) for _ in range(FRAME_BLOCKS))
        self.norm = nn.LayerNorm(FRAME_WIDTH)
        self.out = nn.Linear(FRAME_WIDTH, 1 + len(TONE_BANDS) + len(NOISE_BANDS))

    def forward(self, states: Tensor, ends: Tensor, frames: Tensor, voice: Tensor, mask: Tensor) -> Spoken:
        """`frames` counts from zero to the longest."""
        index, place = places(ends, frames)
        near = states.gather(1, index[..., None].expand(-1, -1, states.shape[2]))
        x = self.enter(near) + self.place(place) + self.voices(voice)[:, None]
        for block in self.blocks:
            x = block(x, mask)
        out = self.out(self.norm(x))
        hertz = MIDDLE * out[..., 0].clamp(-1, 1).exp()
        tone, hiss = (out[..., 1:] * 2 + QUIET).clamp(-14, 6).split([len(TONE_BANDS), len(NOISE_BANDS)], 2)
        return Spoken(hertz, tone, hiss)


class Voices(nn.Module):
    """The whole model."""

    def __init__(self) -> None:
        super().__init__()
        self.reader, self.speaker, self.vocoder = Reader(), Speaker(), Vocoder()

    def forward(self, ids: Tensor, voice: Tensor, pace: Tensor, loudness: Tensor) -> Tensor:
        """Samples [1, N] of one sentence: lengths are those of the model times `pace`."""
        letters = torch.ones_like(ids, dtype=torch.float32)[..., None]
        states, lengths = self.reader(ids, voice, letters)
        ends = (lengths.exp() - 1).clamp(min=0).mul(pace).cumsum(1)
        frames = torch.arange(ends[0, -1].ceil().clamp(min=1).long(), device=ids.device).float()
        said = self.speaker(states, ends, frames, voice, torch.ones_like(frames)[None, :, None])
        return self.vocoder(said.hertz, said.tone, said.hiss, loudness)
