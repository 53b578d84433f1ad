"""Everything at once: where letters end, the pitch, and the waves of the vocoder, given the true lengths and pitch."""

import json
import random
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.optim import Muon, split_matrices
from ..common.paths import work_dir
from ..common.trainer import MuonTrainer
from . import NAME
from .letters import END, IDS, token_ids
from .losses import SpectralLoss
from .model import MIDDLE, Voices
from .pool import Clip, Pool, build, drawn
from .reference import HOP

TRAINED = {"en": 1800, "de": 800, "es": 800, "fr": 800}
HELD_OUT = {"en": 60, "de": 40, "es": 40, "fr": 40}
BATCH, RATE = 24, 2e-3
UNENDED = 0.25  # share of the sentences without a full stop at their end


def generate() -> None:
    """Both pools of speech (about five minutes)."""
    folder = work_dir(NAME)
    build(folder, "test", drawn("tiny-tts/test", HELD_OUT, True))
    build(folder, "train", drawn("tiny-tts/train", TRAINED, False))


@dataclass(frozen=True)
class Batch:
    """Clips padded to the longest."""

    ids: Tensor
    letters: Tensor
    ends: Tensor
    voice: Tensor
    frames: Tensor
    hertz: Tensor
    voiced: Tensor
    wave: Tensor


def _tokens(clip: Clip, unended: bool) -> tuple[list[int], list[float]]:
    """Ids and ends; without its full stop a sentence sounds the same."""
    ids, ends = token_ids(clip.text), list(clip.ends)
    if unended and ids[-2] == IDS["."] and ids[-1] == IDS[END]:
        del ids[-2], ends[-2]
    return ids, ends


def batch_of(pool: Pool, clips: list[Clip], rng: random.Random) -> Batch:
    """Padded; a padding token ends where the sentence does."""
    rows = [_tokens(clip, rng.random() < UNENDED) for clip in clips]
    width, longest = max(len(ids) for ids, _ in rows), max(clip.frames for clip in clips)
    ids, letters = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), width, 1)
    ends, wave = torch.zeros(len(rows), width), torch.zeros(len(rows), longest * HOP)
    frames, hertz, voiced = torch.zeros(len(rows), longest, 1), torch.full((len(rows), longest), MIDDLE), torch.zeros(len(rows), longest)
    for row, (clip, (tokens, until)) in enumerate(zip(clips, rows, strict=True)):
        ids[row, : len(tokens)], letters[row, : len(tokens)] = torch.tensor(tokens), 1
        ends[row, : len(tokens)], ends[row, len(tokens) :] = torch.tensor(until), until[-1]
        pitch, sure = pool.pitch(clip)
        hertz[row, : clip.frames], voiced[row, : clip.frames] = torch.from_numpy(pitch), torch.from_numpy(sure.astype(np.float32))
        frames[row, : clip.frames] = 1
        wave[row, : clip.frames * HOP] = torch.from_numpy(pool.wave(clip))
    return Batch(ids, letters, ends, torch.tensor([clip.voice for clip in clips]), frames, hertz, voiced, wave)


class Trainer(MuonTrainer):
    """Model, optimizers and the reference recordings."""

    COUNTED = "clips"

    def __init__(self, pool: Pool, seed: int) -> None:
        self.model, self.pool = Voices(), pool
        matrices, rest = split_matrices(self.model, ("letters", "voices", "length", "place", "out"))
        self.rest, self.muon = rest, Muon(matrices, 0.01)
        self.adam = torch.optim.AdamW(rest, RATE, betas=(0.9, 0.98), weight_decay=0.0)
        self.spectral, self.rng, self.clips = SpectralLoss(), random.Random(seed), 0
        self.ordered = sorted(pool.clips, key=lambda clip: clip.frames)

    def batch(self) -> Batch:
        """Clips of about one length."""
        first = self.rng.randrange(len(self.ordered) - 4 * BATCH)
        return batch_of(self.pool, self.rng.sample(self.ordered[first : first + 4 * BATCH], BATCH), self.rng)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Of the waves, of the lengths of letters and of the pitch."""
        model = self.model
        with torch.autocast("cpu", torch.bfloat16):
            states, lengths = model.reader(batch.ids, batch.voice, batch.letters)
            said = model.speaker(states, batch.ends, torch.arange(batch.frames.shape[1]).float(), batch.voice, batch.frames)
        made = model.vocoder(batch.hertz, said.tone.float(), said.hiss.float()) * batch.frames.repeat(1, 1, HOP).flatten(1)
        wanted = (batch.ends - nn.functional.pad(batch.ends[:, :-1], (1, 0))).clamp(min=0)
        letters, weight = batch.letters[..., 0], batch.voiced + 0.05 * batch.frames[..., 0]
        return {
            "wave": self.spectral(made, batch.wave, batch.frames.mean()),
            "length": ((lengths.float() - wanted.log1p()).abs() * letters).sum() / letters.sum(),
            "pitch": 2 * ((said.hertz.float().log() - batch.hertz.log()).abs() * weight).sum() / weight.sum(),
        }

    def step(self, scale: float) -> dict[str, float]:
        """One update."""
        for parameter in self.model.parameters():
            parameter.grad = None
        losses = self.losses(self.batch())
        torch.stack(list(losses.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = RATE * scale
        self.adam.step()
        self.muon.step(scale)
        self.clips += BATCH
        return {name: value.item() for name, value in losses.items()}


@torch.no_grad()
def quick_scores(trainer: Trainer, held_out: Pool, count: int = 48) -> dict[str, float]:
    """The losses on held-out sentences."""
    clips = sorted(held_out.clips[:count], key=lambda clip: clip.frames)
    rows = [trainer.losses(batch_of(held_out, clips[at : at + BATCH], random.Random(1))) for at in range(0, count, BATCH)]
    return {name: round(float(np.mean([row[name].item() for row in rows])), 4) for name in rows[0]}


def train(minutes: float, resume: bool, pause_file: Path | None, seed: int = 3) -> None:
    """Train within the budget."""
    folder = work_dir(NAME)
    pool, held_out = Pool(folder, "train"), Pool(folder, "test")
    torch.manual_seed(seed)
    checkpoint, step, spent = Checkpoint(folder / "checkpoint.pt"), 0, 0.0
    state = checkpoint.load() if resume and checkpoint.path.exists() else None
    trainer = Trainer(pool, seed * 1_000_003 + (state or {}).get("step", 0))
    if state:
        step, spent = restore(checkpoint.path, state, trainer.restore)
    budget, started, next_score = Budget(minutes, spent, pause_file), time.monotonic(), (int(spent / (minutes * 60) * 8) + 1) / 8
    for step, fraction in run_steps(budget, checkpoint, trainer.snapshot, step):
        losses = trainer.step(learning_rate(step, fraction, 100))
        if step % 25 == 0:
            shown = " ".join(f"{name} {value:.3f}" for name, value in losses.items())
            print(f"{budget.spent:.0f}s step {step} clips {trainer.clips} {shown} {time.monotonic() - started:.0f}s wall", flush=True)
        if fraction >= next_score:
            next_score += 1 / 8
            print("scores", json.dumps(quick_scores(trainer, held_out)), flush=True)
