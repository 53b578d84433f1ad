"""Cross-entropy on both rows of a window plus CTC on the encoder, which makes it listen early."""

import json
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.optim import Muon, split_matrices
from ..common.paths import work_dir
from ..common.trainer import MuonTrainer
from ..common.vocabulary_file import load_tokenizer
from ..common.wer import word_error_rate
from . import pool as speech
from .features import log_mel, mask
from .model import Trained, listen
from .vocabulary import SECONDS, Vocabulary, build
from .windows import Maker, Window, rows_of

NAME = "tiny-whisper"
TRAINED, HELD_OUT = 18_000, 480
LONG_PHASE = 0.5  # of the minutes: a shorter share of full windows leaves the times of second and third sentences to chance
LONGER = 0.5  # of the rate, for a run that goes on after its decay had begun
SHORT_SECONDS = 3.6


def generate() -> None:
    """Vocabulary and both pools of speech (about five minutes)."""
    folder = work_dir(NAME)
    build(folder / "tokenizer.json")
    speech.build(folder, "test", 10_000_000, HELD_OUT, True)
    speech.build(folder, "train", 0, TRAINED, False)


class Trainer(MuonTrainer):
    """Model, optimizers and the maker of windows."""

    COUNTED = "clips"

    def __init__(self, vocabulary: Vocabulary, pool: speech.Pool, seed: int) -> None:
        self.vocabulary = vocabulary
        self.model = Trained(vocabulary)
        matrices, rest = split_matrices(self.model, ("embed", "ctc", "proj_out"))
        self.rest = [p for p in rest if p.requires_grad]
        self.muon = Muon(matrices, 0.015)
        self.adam = torch.optim.AdamW(self.rest, 2e-3, betas=(0.9, 0.98), weight_decay=0.01)
        self.rng = random.Random(seed)
        self.maker = Maker(pool, self.rng)
        self.generator = torch.Generator().manual_seed(seed)
        self.clips = 0

    def batch(self, fraction: float) -> list[Window]:
        """Short windows first; then windows of the full length with several sentences."""
        if fraction < LONG_PHASE:
            return [self.maker.window(SHORT_SECONDS, 2, 0.8) for _ in range(32)]
        return [self.maker.cutting(SECONDS) for _ in range(14)]

    def step(self, windows: list[Window], scale: float) -> tuple[float, float]:
        """One update; returns both losses."""
        mel = log_mel(torch.from_numpy(np.stack([w.wave for w in windows])), torch.empty(len(windows)).uniform_(-1.5, 1.5))
        mel = mask(mel, self.generator)
        pairs = [rows_of(self.vocabulary, self.rng, window) for window in windows]
        rows = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
        width = max(len(ids) for ids, _ in rows)
        ids, targets = torch.full((len(rows), width), self.vocabulary.end), torch.full((len(rows), width), -100)
        for index, (given, wanted) in enumerate(rows):
            ids[index, : len(given)] = torch.tensor(given)
            targets[index, : len(wanted)] = torch.tensor(wanted)
        with torch.autocast("cpu", torch.bfloat16):
            heard = self.model.hear(mel)
            logits = self.model.say(ids, heard.repeat(2, 1, 1))
        spoken = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-100)
        aligned = self._ctc(heard, windows)
        for parameter in self.model.parameters():
            parameter.grad = None
        (spoken + 0.3 * aligned).backward()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = 2e-3 * scale
        self.adam.step()
        self.muon.step(scale)
        self.clips += sum(len(window.placed) for window in windows)
        return spoken.item(), aligned.item()

    def _ctc(self, heard: torch.Tensor, windows: list[Window]) -> torch.Tensor:
        """Only windows whose sentences are whole have an exact transcript."""
        kept = [i for i, w in enumerate(windows) if w.is_whole]
        texts = [[t for p in windows[i].placed for t in self.vocabulary.text(p.clip.text)] for i in kept]
        scores = self.model.ctc(heard[kept].float()).log_softmax(-1).transpose(0, 1)
        lengths = torch.tensor([len(text) for text in texts])
        whole = torch.full((len(kept),), heard.shape[1])
        return F.ctc_loss(scores, torch.tensor([t for text in texts for t in text]), whole, lengths, blank=self.vocabulary.size, zero_infinity=True)


def quick_scores(trainer: Trainer, held_out: speech.Pool, count: int) -> dict[str, float]:
    """Word error rates on held-out sentences and voices, from the weights in training."""
    vocabulary, scores = trainer.vocabulary, {}
    trainer.model.eval()
    for language in ("en", "de", "es", "fr"):
        clips = [clip for clip in held_out.clips if clip.language == language][:count]
        waves = np.zeros((len(clips), int(4.2 * 16_000)), np.float32)
        for row, clip in enumerate(clips):
            waves[row, 4800 : 4800 + clip.length] = held_out.wave(clip)
        mel = log_mel(torch.from_numpy(waves))
        for task in ("transcribe",) if language == "en" else ("transcribe", "translate"):
            heard = listen(trainer.model, vocabulary, mel, [vocabulary.prefix(language, task, False)] * len(clips))
            said = [clip.english if task == "translate" else clip.text for clip in clips]
            scores[f"{language} {task}"] = word_error_rate([(vocabulary.plain(a), b) for a, b in zip(heard, said, strict=True)])
    trainer.model.train()
    return scores


def train(minutes: float, resume: bool, pause_file: Path | None, seed: int = 3) -> None:
    """Train within the budget."""
    folder = work_dir(NAME)
    vocabulary = Vocabulary(load_tokenizer(folder / "tokenizer.json"))
    pool, held_out = speech.Pool(folder, "train"), speech.Pool(folder, "test")
    torch.manual_seed(seed)
    checkpoint, step, spent = Checkpoint(folder / "checkpoint.pt"), 0, 0.0
    state = checkpoint.load() if resume and checkpoint.path.exists() else None
    trainer = Trainer(vocabulary, pool, seed * 1_000_003 + (state or {}).get("step", 0))
    if state:
        step, spent = restore(checkpoint.path, state, trainer.restore)
    rate = LONGER if spent > minutes * 60 * LONG_PHASE else 1.0
    budget, started, next_score = Budget(minutes, spent, pause_file), time.monotonic(), (int(spent / (minutes * 60) * 6) + 1) / 6
    for step, fraction in run_steps(budget, checkpoint, trainer.snapshot, step):
        spoken, aligned = trainer.step(trainer.batch(fraction), rate * learning_rate(step, fraction, 150))
        if step % 50 == 0:
            print(f"{budget.spent:.0f}s step {step} clips {trainer.clips} ce {spoken:.3f} ctc {aligned:.3f} {time.monotonic() - started:.0f}s wall", flush=True)
        if fraction >= next_score:
            next_score += 1 / 6
            print("scores", json.dumps(quick_scores(trainer, held_out, 16)), flush=True)
