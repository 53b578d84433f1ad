"""From the encoder's weights: the right document must score highest, and above zero."""

import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import BertForSequenceClassification

from ..common.errors import refuse
from ..common.loop import Budget, Checkpoint, learning_rate, read_checkpoint, restore, run_steps
from ..common.optim import Muon, split_matrices
from ..common.paths import work_dir
from ..tiny_embed.model import LONGEST, config
from ..tiny_embed.train import NAME as ENCODER
from ..tiny_embed.train import load_tokenizer
from .data import group

NAME = "tiny-rerank"
GROUPS = 24
RATE = 1e-3
EASY = 0.6  # up to this share of the budget the wrong documents grow harder


def build(vocabulary: int) -> BertForSequenceClassification:
    """One label on the first token's pooled state."""
    settings = config(vocabulary)
    settings.num_labels = 1
    settings.architectures = ["BertForSequenceClassification"]
    return BertForSequenceClassification(settings)


def generate() -> None:
    """Vocabulary and first weights are those of tiny-embed."""
    read_checkpoint(work_dir(ENCODER) / "checkpoint.pt")
    load_tokenizer()


def scores(model: BertForSequenceClassification, tokenizer: Tokenizer, pairs: list[tuple[str, str]]) -> torch.Tensor:
    """One logit a pair."""
    rows = tokenizer.encode_batch(pairs)
    longest = min(LONGEST, max(len(row.ids) for row in rows))
    ids, types = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        kept = min(longest, len(row.ids))
        ids[index, :kept], types[index, :kept] = torch.tensor(row.ids[:kept]), torch.tensor(row.type_ids[:kept])
    return model(input_ids=ids, attention_mask=(ids > 0).long(), token_type_ids=types).logits[:, 0]


def train(minutes: float, resume: bool, pause_file: Path | None) -> None:
    """Muon and AdamW with a rate that falls over the last half."""
    tokenizer = load_tokenizer()
    torch.manual_seed(4)
    model = build(tokenizer.get_vocab_size())
    matrices, rest = split_matrices(model, ("embeddings", "classifier"))
    muon, adam = Muon(matrices, 0.01), torch.optim.AdamW(rest, RATE, betas=(0.9, 0.98), weight_decay=0.01)

    def take(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        muon.load_state_dict(state["muon"])

    checkpoint, step, spent = Checkpoint(work_dir(NAME) / "checkpoint.pt"), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), take)
    else:
        first = read_checkpoint(work_dir(ENCODER) / "checkpoint.pt")["model"]
        if model.bert.load_state_dict(first, strict=False).unexpected_keys:
            refuse("The checkpoint of tiny-embed does not fit tiny-rerank.")
    rng = random.Random(7 + step)

    def snapshot() -> dict[str, Any]:
        return {"model": model.state_dict(), "adam": adam.state_dict(), "muon": muon.state_dict()}

    budget = Budget(minutes, spent, pause_file)
    for step, fraction in run_steps(budget, checkpoint, snapshot, step):
        groups = [group(rng, min(1.0, fraction / EASY)) for _ in range(GROUPS)]
        with torch.autocast("cpu", torch.bfloat16):
            flat = scores(model, tokenizer, [(query, document) for query, documents in groups for document in documents])
        table = flat.float().view(GROUPS, -1)
        wanted = torch.zeros_like(table)
        wanted[:, 0] = 1
        listwise = F.cross_entropy(table, torch.zeros(GROUPS, dtype=torch.long))
        loss = listwise + 0.5 * F.binary_cross_entropy_with_logits(table, wanted)
        scale = learning_rate(step, fraction, 50)
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        for entry in adam.param_groups:
            entry["lr"] = RATE * scale
        adam.step()
        muon.step(scale)
        if step % 50 == 0:
            right = (table.argmax(1) == 0).float().mean().item()
            print(f"{budget.spent:.0f}s step {step} loss {loss.item():.3f} first {right:.2f}", flush=True)
