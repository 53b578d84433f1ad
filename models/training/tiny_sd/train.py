"""v-prediction on patch codes with dropped captions; an average of the weights is what is exported."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import CLIPTokenizer

from ..common import clip_tokenizer
from ..common.errors import refuse
from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.optim import Muon
from ..common.paths import work_dir
from .captions import caption_loss
from .code import code_loss, code_of
from .model import LENGTH, Networks, noise_levels, token_ids
from .pictures import Scene, draw, scene, unnamed

NAME = "tiny-sd"
BATCH, RATE = 96, 2e-3
PAINTED, READ, TOLD = 96, 48, 32  # further pictures for the decoder, pictures for the encoder, further captions
CAPTIONS_FIRST = 400  # steps on captions alone: who stands where must be understood before a picture can profit from it
DROPPED, UNNAMED = 0.15, 0.1  # shares without their caption and of pictures that have none
OUTER = ("token_embedding", "position_embedding", "positional_embedding", "conv_in", "conv_out", "answers")  # not for Muon: no matrix between hidden states
PAIRS = 0.75  # share of scenes with two things, which are learned last
DECISIVE = 0.4  # share of the draws from the noise levels where place, colour and shape are decided


def generate() -> None:
    """The tokenizer; pictures are drawn while training."""
    rng = random.Random(1)
    clip_tokenizer.build(work_dir(NAME) / "tokenizer", [scene(rng, None).caption for _ in range(4000)], 700, LENGTH)


def load_tokenizer() -> CLIPTokenizer:
    """What `generate` made."""
    folder = work_dir(NAME) / "tokenizer"
    if not (folder / "vocab.json").is_file():
        refuse(f"There is no tokenizer in {folder}: run `generate` first.")
    return CLIPTokenizer.from_pretrained(folder)


def _timesteps() -> Tensor:
    """One per picture, spread evenly over all noise levels and once more over the decisive ones."""
    place = (torch.arange(BATCH) + torch.rand(BATCH)) / BATCH
    return torch.where(place < DECISIVE, 600 + place / DECISIVE * 400, (place - DECISIVE) / (1 - DECISIVE) * 1000).long()


class Trainer:
    """Networks, their running average and the optimizer."""

    def __init__(self, seed: int) -> None:
        self.tokenizer = load_tokenizer()
        self.networks = Networks(self.tokenizer)
        self.average = {name: value.clone() for name, value in self.networks.state_dict().items()}
        named = list(self.networks.named_parameters())
        inner = {name for name, p in named if p.ndim in (2, 4) and not any(part in name for part in OUTER)}
        self.muon = Muon(p for name, p in named if name in inner)
        self.adam = torch.optim.AdamW([p for name, p in named if name not in inner], RATE, betas=(0.9, 0.99), weight_decay=0.0)
        self.kept, self.noise = noise_levels()
        self.rng = random.Random(seed)
        self.pictures = 0

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"model": self.networks.state_dict(), "average": self.average, "adam": self.adam.state_dict(), "muon": self.muon.state_dict(), "pictures": self.pictures}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.networks.load_state_dict(state["model"])
        self.average = state["average"]
        self.adam.load_state_dict(state["adam"])
        self.muon.load_state_dict(state["muon"])
        self.pictures = state["pictures"]

    def _scenes(self, count: int) -> list[Scene]:
        return [scene(self.rng, False, PAIRS) if self.rng.random() > UNNAMED else unnamed(self.rng) for _ in range(count)]

    def _captions(self, count: int) -> list[Scene]:
        return [scene(self.rng, False, 0.9) for _ in range(count)]

    def _told(self, scenes: list[Scene]) -> tuple[Tensor, Tensor]:
        """Hidden states of the captions and how badly they answer what the captions say."""
        hidden = self.networks.read(token_ids(self.tokenizer, [s.caption for s in scenes]))
        return hidden, caption_loss(self.networks.answer(hidden), scenes)

    def _losses(self) -> dict[str, Tensor]:
        """Of freshly drawn pictures."""
        scenes = [s if self.rng.random() > DROPPED else replace(s, caption="") for s in self._scenes(BATCH)]
        painted = [*scenes, *self._scenes(PAINTED)]
        codes = code_of(painted)
        timestep, noise = _timesteps(), torch.randn_like(codes[:BATCH])
        a, s = self.kept[timestep][:, None, None, None], self.noise[timestep][:, None, None, None]
        with torch.autocast("cpu", torch.bfloat16):
            hidden, understood = self._told([*scenes, *self._captions(TOLD)])
            said = self.networks(a * codes[:BATCH] + s * noise, timestep, hidden[:BATCH])
            taught = code_loss(self.networks.code, torch.from_numpy(draw(painted)), codes, READ)
        self.pictures += BATCH
        return {"loss": (said - (a * noise - s * codes[:BATCH])).square().mean(), "code": taught, "captions": 0.3 * understood}

    def step(self, index: int, scale: float) -> dict[str, float]:
        """One update."""
        self.networks.zero_grad()
        losses = {"captions": self._told(self._captions(BATCH))[1]} if index < CAPTIONS_FIRST else self._losses()
        sum(losses.values()).backward()
        torch.nn.utils.clip_grad_norm_(self.networks.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = RATE * scale
        self.adam.step()
        self.muon.step(scale)
        names, values = zip(*((n, v) for n, v in self.networks.state_dict().items() if v.is_floating_point()), strict=True)
        torch._foreach_lerp_([self.average[n] for n in names], list(values), 1 - min(0.999, (index + 1) / (index + 20)))
        return {name: value.item() for name, value in losses.items()}


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
        losses = trainer.step(step, learning_rate(step, fraction, 50, 0.6))
        if step % 50 == 0:
            told = " ".join(f"{name} {value:.4f}" for name, value in losses.items())
            print(f"{budget.spent:.0f}s step {step} pictures {trainer.pictures} {told} {time.monotonic() - started:.0f}s wall", flush=True)
