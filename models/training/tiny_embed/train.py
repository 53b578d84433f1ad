"""Contrastive training: each query must find its own document among all of the batch."""

import random
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from ..common import wordpiece
from ..common.loop import Budget, Checkpoint, restore, run_steps
from ..common.paths import work_dir
from ..common.vocabulary_file import load_tokenizer as read_tokenizer
from .data import batch, passages
from .model import build, encode

NAME = "tiny-embed"
VOCABULARY = 3000
TEMPERATURE = 0.05
PAIRS, PASSAGES = 128, 48


def generate() -> None:
    """The vocabulary; pairs are drawn while training."""
    rng = random.Random(1)
    lines = (text for _ in range(250) for query, document, _ in batch(rng, PAIRS) for text in (query, document))
    wordpiece.build(work_dir(NAME) / "tokenizer.json", lines, VOCABULARY)


def load_tokenizer() -> Tokenizer:
    """The vocabulary that `generate` made."""
    return read_tokenizer(work_dir(NAME) / "tokenizer.json")


def contrastive(queries: torch.Tensor, documents: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Symmetric cross-entropy; rows of one group are not pushed apart."""
    scores = queries @ documents.T / TEMPERATURE
    same = (groups[:, None] == groups[None]) & ~torch.eye(len(groups), dtype=torch.bool)
    scores = scores.masked_fill(same, -1e4)
    wanted = torch.arange(len(groups))
    return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.T, wanted)) / 2


def train(minutes: float, resume: bool, pause_file: Path | None) -> None:
    """AdamW with a rate that falls to zero."""
    tokenizer = load_tokenizer()
    torch.manual_seed(2)
    model = build(tokenizer.get_vocab_size())
    adam = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.01)

    def take(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    checkpoint, step, spent = Checkpoint(work_dir(NAME) / "checkpoint.pt"), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), take)
    rng = random.Random(5 + step)

    def snapshot() -> dict[str, Any]:
        return {"model": model.state_dict(), "adam": adam.state_dict()}

    budget, started = Budget(minutes, spent, pause_file), time.monotonic()
    for step, fraction in run_steps(budget, checkpoint, snapshot, step):
        pairs = passages(rng, PASSAGES) if step % 7 == 6 else batch(rng, PAIRS)
        groups = torch.tensor([group for _, _, group in pairs])
        with torch.autocast("cpu", torch.bfloat16):
            queries, documents = encode(model, tokenizer, [p[0] for p in pairs]), encode(model, tokenizer, [p[1] for p in pairs])
        loss = contrastive(queries.float(), documents.float(), groups)
        adam.zero_grad()
        loss.backward()
        for group in adam.param_groups:
            group["lr"] = 1e-3 * min(1, (step + 1) / 100) * max(0.02, 1 - fraction)
        adam.step()
        if step % 50 == 0:
            print(f"{budget.spent:.0f}s step {step} loss {loss.item():.3f} {time.monotonic() - started:.0f}s wall", flush=True)
