"""Training: Muon on the matrices, AdamW on the rest, constant rate and then a linear decay."""

import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.optim import Muon, split_matrices
from ..common.paths import work_dir
from ..common.trainer import MuonTrainer
from ..common.vocabulary_file import load_tokenizer
from .batches import batches
from .data.mix import Mixture
from .model import Decoder, Shape
from .quick import KINDS, quick_scores

NAME = "tiny-chat"
TOKENS_PER_STEP = 3072  # Muon takes a sixth of such a step on one thread, a fifth of one with 2048
SCORED = 12  # times per whole run
LONGER = 0.15  # of the rate, for a run that goes on after its decay had begun: the full rate undoes what was learned
HELD = 0.3  # of the minutes that such a run adds before its rate falls
EASY = 0.3  # loss weight of a token that is already certain, against 1.7 of one that is wrong


class Trainer(MuonTrainer):
    """Model, optimizers and the stream of batches."""

    COUNTED = "tokens"

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.tokenizer = tokenizer
        self.model = Decoder(Shape(vocabulary=tokenizer.get_vocab_size()))
        matrices, rest = split_matrices(self.model, ("embed_tokens",))
        self.rest = rest
        self.muon = Muon(matrices)
        self.adam = torch.optim.AdamW(rest, 3e-3, betas=(0.9, 0.98), weight_decay=0.01)
        self.seed = seed
        self.tokens = 0

    def step(self, ids: torch.Tensor, weights: torch.Tensor, scale: float) -> float:
        """One update; returns the mean loss of the answers' tokens."""
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(ids[:, :-1])
        losses = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        given = weights[:, 1:].flatten()
        answers = given == 1
        certain = torch.exp(-losses.detach())
        wanted = torch.where(answers, given * (EASY + 1.4 * (1 - certain)), given)
        for parameter in self.model.parameters():
            parameter.grad = None
        ((losses * wanted).sum() / given.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = 3e-3 * scale
        self.adam.step()
        self.muon.step(scale)
        self.tokens += int((weights > 0).sum())
        return float((losses.detach() * answers).sum() / answers.sum().clamp(min=1))


def drilled(fraction: float) -> float:
    """The share of drills: most at first, few at the end."""
    return min(0.8, max(0.1, 0.9 * (1 - fraction)))


def scale(step: int, fraction: float, begun: float) -> float:
    """What the rates are multiplied by, `step` steps after a start at the share `begun` of the budget."""
    if begun <= 0.5:
        return learning_rate(step, fraction, 50)
    return LONGER * learning_rate(step, (fraction - begun) / (1 - begun), 50, HELD)


def measure(trainer: Trainer, mixture: Mixture, count: int = 10) -> None:
    """Print exact scores and draw more of what fails."""
    scores = quick_scores(trainer.model, trainer.tokenizer, count)
    mixture.scores = {maker: scores[kind] for maker, kind in KINDS}
    print("scores", json.dumps(scores), flush=True)


def train(minutes: float, resume: bool, pause_file: Path | None, seed: int = 1) -> None:
    """Train within the budget; the checkpoint is always loadable."""
    folder = work_dir(NAME)
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    torch.manual_seed(seed)
    trainer = Trainer(tokenizer, seed)
    checkpoint, step, spent = Checkpoint(folder / "checkpoint.pt"), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), trainer.restore)
    mixture = Mixture(random.Random(seed * 1_000_003 + step))
    stream = batches(tokenizer, mixture, TOKENS_PER_STEP)
    budget = Budget(minutes, spent, pause_file)
    loss, started, first, next_score = 0.0, time.monotonic(), trainer.tokens, spent / budget.total + 1 / SCORED
    begun, first_step = spent / budget.total, step
    if step:
        measure(trainer, mixture)
    for step, fraction in run_steps(budget, checkpoint, trainer.snapshot, step):
        mixture.drilled = drilled(fraction)
        answer_loss = trainer.step(*next(stream), scale(step - first_step, fraction, begun))
        loss = answer_loss if loss == 0 else loss * 0.99 + answer_loss * 0.01
        if step % 100 == 0:
            speed = (trainer.tokens - first) / (time.monotonic() - started)
            print(f"{budget.spent:.0f}s step {step} tokens {trainer.tokens / 1e6:.2f}M answer-loss {loss:.3f} {speed:.0f} tok/s", flush=True)
        if fraction >= next_score:
            next_score += 1 / SCORED
            measure(trainer, mixture)
