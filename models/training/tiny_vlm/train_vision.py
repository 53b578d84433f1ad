"""Training of the vision encoder on freshly drawn images."""

import random
from pathlib import Path

import numpy as np
import torch

from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.optim import Muon
from ..common.paths import work_dir
from ..common.trainer import MuonTrainer
from . import NAME
from .drawing import distorted
from .scenes import View, view
from .vision import Vision, to_pixels, vision_loss

FILE = "vision.pt"
BATCH, RATE = 32, 3e-3
COLOURS = 4.0  # times the rate, for the small networks that name colours
REUSED = 2  # updates with each image, because drawing takes as long as an update
OUTER = ("cells", "colours", "ground", "body.0.")  # not for Muon: no matrix between hidden states


class VisionTrainer(MuonTrainer):
    """Network and optimizers."""

    COUNTED = "images"

    def __init__(self) -> None:
        self.model = Vision()
        named = list(self.model.named_parameters())
        inner = {name for name, p in named if p.ndim == 4 and not name.startswith(OUTER)}
        self.muon = Muon((p for name, p in named if name in inner), precision=torch.float32)
        named_rest = [(p, COLOURS if name.startswith(("colours", "ground")) else 1.0) for name, p in named if name not in inner]
        groups = [{"params": [p for p, factor in named_rest if factor == wanted], "factor": wanted} for wanted in (1.0, COLOURS)]
        self.adam = torch.optim.AdamW(groups, RATE, betas=(0.9, 0.99), weight_decay=0.0)
        self.images = 0
        self.drawn: list[tuple[View, np.ndarray]] = []

    def step(self, rng: random.Random, scale: float) -> dict[str, float]:
        """One update."""
        if self.images % (BATCH * REUSED) == 0:
            self.drawn = [(one, distorted(one, rng)) for one in (view(rng, digits=0.4) for _ in range(BATCH * REUSED))]
        views, images = zip(*rng.sample(self.drawn, BATCH), strict=True)
        losses = vision_loss(self.model, to_pixels(images), views)
        self.model.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        for group in self.adam.param_groups:
            group["lr"] = RATE * scale * group["factor"]
        self.adam.step()
        self.muon.step(scale)
        self.images += BATCH
        return {name: value.item() for name, value in losses.items()}


def train_vision(minutes: float, resume: bool, pause_file: Path | None, seed: int = 21) -> None:
    """Train within the budget."""
    torch.manual_seed(seed)
    trainer, checkpoint, step, spent = VisionTrainer(), Checkpoint(work_dir(NAME) / FILE), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), trainer.restore)
    rng = random.Random(seed * 1_000_003 + step)
    budget, mean = Budget(minutes, spent, pause_file), {}
    for step, fraction in run_steps(budget, checkpoint, trainer.snapshot, step):
        losses = trainer.step(rng, learning_rate(step, fraction, 30))
        mean = {name: mean.get(name, value) * 0.95 + value * 0.05 for name, value in losses.items()}
        if step % 40 == 0:
            told = " ".join(f"{name} {value:.4f}" for name, value in mean.items())
            print(f"vision {budget.spent:.0f}s step {step} images {trainer.images} {told}", flush=True)
