"""Training of the decoder on image codes, without images: the code of a view is known before it is drawn."""

import random
from pathlib import Path

import torch
import torch.nn.functional as F

from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.optim import Muon, split_matrices
from ..common.paths import work_dir
from ..common.trainer import MuonTrainer
from ..common.vocabulary_file import load_tokenizer
from . import NAME
from .code import true_code
from .language import Language
from .render import Writer

FILE = "checkpoint.pt"
BATCH, RATE, MUON_RATE = 16, 3e-3, 0.012
IMAGE_RATE = 0.25  # times the rate, for the projection of the image code: what it adds must not hide the words of things


class LanguageTrainer(MuonTrainer):
    """Model and optimizers."""

    COUNTED = "images"

    def __init__(self) -> None:
        tokenizer = load_tokenizer(work_dir(NAME) / "tokenizer.json")
        self.writer = Writer(tokenizer)
        self.model = Language(tokenizer)
        matrices, self.rest = split_matrices(self.model, ("embed_tokens", "see"))
        self.muon = Muon(matrices, MUON_RATE, torch.float32)
        seen = {id(p) for p in self.model.see.parameters()}
        groups = [{"params": [p for p in self.rest if (id(p) in seen) == of_image], "factor": IMAGE_RATE if of_image else 1.0} for of_image in (False, True)]
        self.adam = torch.optim.AdamW(groups, RATE, betas=(0.9, 0.98), weight_decay=0.01)
        self.images = 0

    def step(self, rng: random.Random, scale: float) -> tuple[float, float]:
        """One update; returns the loss and the share of right first tokens."""
        batch = self.writer.draw(rng, BATCH)
        logits, wanted, weights = self.model(true_code(batch.views, rng), batch)
        loss = (F.cross_entropy(logits, wanted, reduction="none") * weights).sum() / weights.sum()
        for parameter in self.model.parameters():
            parameter.grad = None
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        for group in self.adam.param_groups:
            group["lr"] = RATE * scale * group["factor"]
        self.adam.step()
        self.muon.step(scale)
        self.model.pins.hold()
        self.images += BATCH
        return loss.item(), (logits.detach()[weights > 1].argmax(-1) == wanted[weights > 1]).float().mean().item()


def train_language(minutes: float, resume: bool, pause_file: Path | None, seed: int = 22) -> None:
    """Train within the budget."""
    torch.manual_seed(seed)
    trainer, checkpoint, step, spent = LanguageTrainer(), Checkpoint(work_dir(NAME) / FILE), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), trainer.restore)
    rng = random.Random(seed * 1_000_003 + step)
    budget, loss, right = Budget(minutes, spent, pause_file), 0.0, 0.0
    for step, fraction in run_steps(budget, checkpoint, trainer.snapshot, step):
        new_loss, new_right = trainer.step(rng, learning_rate(step, fraction, 30, 0.75))
        loss, right = (new_loss, new_right) if loss == 0 else (loss * 0.95 + new_loss * 0.05, right * 0.95 + new_right * 0.05)
        if step % 20 == 0:
            print(f"language {budget.spent:.0f}s step {step} images {trainer.images} loss {loss:.4f} right {right:.3f}", flush=True)
