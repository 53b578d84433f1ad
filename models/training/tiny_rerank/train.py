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
from ..common.paths import work_dir
from ..tiny_embed.model import LONGEST, config
from ..tiny_embed.train import NAME as ENCODER
from ..tiny_embed.train import load_tokenizer
from .data import group

NAME = "tiny-rerank"
GROUPS = 20
RATE = 7e-4
EASY = 0.4  # up to this share of the budget the wrong documents grow harder


def build(vocabulary: int) -> BertForSequenceClassification:
    """One label on the first token's pooled state."""
    settings = config(vocabulary)
    settings.num_labels = 1
    settings.architectures = ["BertForSequenceClassification"]
    return BertForSequenceClassification(settings)


@torch.no_grad()
def match_tokens(model: BertForSequenceClassification, heads: int = 2) -> None:
    """Let heads of the first layer find equal tokens before training begins, which training does not find by itself.

    Queries and keys are one random projection, so that a token attends to itself and to its equals; the value is the side (query
    or document) of what was found, so that a token with an equal on the other side shows both. Position and side weigh little."""
    embeddings, attention = model.bert.embeddings, model.bert.encoder.layer[0].attention
    width = embeddings.word_embeddings.embedding_dim
    size = width // model.config.num_attention_heads
    side = F.normalize(torch.randn(width), dim=0)
    embeddings.word_embeddings.weight.mul_(2)
    embeddings.token_type_embeddings.weight.copy_(torch.stack([side, -side]) * 0.15)
    for head in range(heads):
        rows = slice(size * head, size * (head + 1))
        directions = torch.randn(width, size)
        directions -= side[:, None] * (side @ directions)
        for projection in (attention.self.query, attention.self.key):
            projection.weight[rows] = torch.linalg.qr(directions)[0].T * 1.4
            projection.bias[rows] = 0
        attention.self.value.weight[size * head] = side
        attention.output.dense.weight[:, size * head] = F.normalize(torch.randn(width), dim=0) * 1.4


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
    """AdamW with a rate that falls over the last half."""
    tokenizer = load_tokenizer()
    torch.manual_seed(4)
    model = build(tokenizer.get_vocab_size())
    adam = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.01)

    def take(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    checkpoint, step, spent = Checkpoint(work_dir(NAME) / "checkpoint.pt"), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), take)
    else:
        first = read_checkpoint(work_dir(ENCODER) / "checkpoint.pt")["model"]
        if model.bert.load_state_dict(first, strict=False).unexpected_keys:
            refuse("The checkpoint of tiny-embed does not fit tiny-rerank.")
        match_tokens(model)
    rng = random.Random(7 + step)

    def snapshot() -> dict[str, Any]:
        return {"model": model.state_dict(), "adam": adam.state_dict()}

    budget = Budget(minutes, spent, pause_file)
    for step, fraction in run_steps(budget, checkpoint, snapshot, step):
        groups = [group(rng, min(1.0, fraction / EASY)) for _ in range(GROUPS)]
        with torch.autocast("cpu", torch.bfloat16):
            flat = scores(model, tokenizer, [(query, document) for query, documents in groups for document in documents])
        table = flat.float().view(GROUPS, -1)
        wanted = torch.zeros_like(table)
        wanted[:, 0] = 1
        listwise = F.cross_entropy(table, torch.zeros(GROUPS, dtype=torch.long))
        loss = listwise + 0.2 * F.binary_cross_entropy_with_logits(table, wanted)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for entry in adam.param_groups:
            entry["lr"] = RATE * learning_rate(step, fraction, 50)
        adam.step()
        if step % 50 == 0:
            right = (table.argmax(1) == 0).float().mean().item()
            print(f"{budget.spent:.0f}s step {step} loss {loss.item():.3f} first {right:.2f}", flush=True)
