"""v-prediction on patch codes with dropped captions; an average of the weights is what is exported."""

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CLIPTokenizer

from ..common import clip_tokenizer
from ..common.errors import refuse
from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.paths import work_dir
from .model import LENGTH, Networks, noise_levels, token_ids
from .patches import PatchCode, fit
from .pictures import draw, scene

NAME = "tiny-sd"
BATCH = 64
DROPPED = 0.1


def generate() -> None:
    """Tokenizer and picture code; pictures are drawn while training."""
    folder, rng = work_dir(NAME), random.Random(1)
    clip_tokenizer.build(folder / "tokenizer", [scene(rng, None).caption for _ in range(4000)], 700, LENGTH)
    torch.save({"model": fit().state_dict()}, folder / "patches.pt")


def load_parts() -> tuple[CLIPTokenizer, PatchCode]:
    """What `generate` made."""
    folder, code = work_dir(NAME), PatchCode()
    if not (folder / "patches.pt").is_file() or not (folder / "tokenizer" / "vocab.json").is_file():
        refuse(f"There is no picture code in {folder}: run `generate` first.")
    try:
        code.load_state_dict(torch.load(folder / "patches.pt", weights_only=True)["model"])
    except Exception:
        refuse(f"{folder / 'patches.pt'} is not a picture code: run `generate` again.")
    return CLIPTokenizer.from_pretrained(folder / "tokenizer"), code.eval()


class Trainer:
    """Networks, their running average and the optimizer."""

    def __init__(self, seed: int) -> None:
        self.tokenizer, self.code = load_parts()
        self.networks = Networks(self.tokenizer)
        self.average = {name: value.clone() for name, value in self.networks.state_dict().items()}
        self.adam = torch.optim.AdamW(self.networks.parameters(), 1e-3, betas=(0.9, 0.99), weight_decay=0.01)
        self.kept, self.noise = noise_levels()
        self.rng = random.Random(seed)
        self.pictures = 0

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"model": self.networks.state_dict(), "average": self.average, "adam": self.adam.state_dict(), "pictures": self.pictures}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.networks.load_state_dict(state["model"])
        self.average = state["average"]
        self.adam.load_state_dict(state["adam"])
        self.pictures = state["pictures"]

    def step(self, index: int, scale: float) -> float:
        """One update on freshly drawn pictures."""
        scenes = [scene(self.rng) for _ in range(BATCH)]
        pixels = torch.from_numpy(np.stack([draw(s) for s in scenes])).permute(0, 3, 1, 2)
        ids = token_ids(self.tokenizer, ["" if self.rng.random() < DROPPED else s.caption for s in scenes])
        with torch.no_grad():
            latent = self.code.down(pixels)
        timestep, noise = torch.randint(0, 1000, (BATCH,)), torch.randn_like(latent)
        a, s = self.kept[timestep][:, None, None, None], self.noise[timestep][:, None, None, None]
        loss = (self.networks(a * latent + s * noise, timestep, self.networks.read(ids)) - (a * noise - s * latent)).square().mean()
        self.adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.networks.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = 1e-3 * scale
        self.adam.step()
        share = 1 - min(0.999, (index + 1) / (index + 20))
        for name, value in self.networks.state_dict().items():
            if value.is_floating_point():
                self.average[name].lerp_(value, share)
        self.pictures += BATCH
        return loss.item()


def train(minutes: float, resume: bool, pause_file: Path | None, seed: int = 11) -> None:
    """Train within the budget."""
    torch.manual_seed(seed)
    checkpoint, step, spent = Checkpoint(work_dir(NAME) / "checkpoint.pt"), 0, 0.0
    state = checkpoint.load() if resume and checkpoint.path.exists() else None
    trainer = Trainer(seed * 1_000_003 + (state or {}).get("step", 0))
    if state:
        step, spent = restore(checkpoint.path, state, trainer.restore)
    budget, started = Budget(minutes, spent, pause_file), time.monotonic()
    for step, fraction in run_steps(budget, checkpoint, trainer.snapshot, step):
        loss = trainer.step(step, learning_rate(step, fraction, 100, 0.6))
        if step % 50 == 0:
            print(f"{budget.spent:.0f}s step {step} pictures {trainer.pictures} loss {loss:.4f} {time.monotonic() - started:.0f}s wall", flush=True)
