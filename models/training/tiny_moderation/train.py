"""From the encoder's weights: each category is a yes or no of its own."""

import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import BertForSequenceClassification

from ..common.bert_weights import read_encoder
from ..common.loop import Budget, Checkpoint, learning_rate, restore, run_steps
from ..common.paths import model_dir, work_dir
from ..common.vocabulary_file import load_tokenizer as read_tokenizer
from ..tiny_embed.model import LONGEST, config
from ..tiny_embed.train import NAME as ENCODER
from .data import LABELS, Example, example

NAME = "tiny-moderation"
TEXTS = 96
RATE = 6e-4
DROPOUT = 0.1  # the templates are few


def build(vocabulary: int) -> BertForSequenceClassification:
    """One label for each category, on the first token's pooled state."""
    settings = config(vocabulary)
    settings.id2label = dict(enumerate(LABELS))
    settings.label2id = {label: index for index, label in enumerate(LABELS)}
    settings.problem_type = "multi_label_classification"
    settings.hidden_dropout_prob = settings.attention_probs_dropout_prob = DROPOUT
    settings.architectures = ["BertForSequenceClassification"]
    return BertForSequenceClassification(settings)


def load_tokenizer() -> Tokenizer:
    """The committed vocabulary of tiny-embed."""
    return read_tokenizer(model_dir(ENCODER) / "tokenizer.json")


def generate() -> None:
    """Vocabulary and first weights are those of the committed tiny-embed; texts are drawn while training."""
    read_encoder(ENCODER)
    load_tokenizer()


def logits(model: BertForSequenceClassification, tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """One row of logits for each text."""
    rows = [row.ids[:LONGEST] for row in tokenizer.encode_batch(texts)]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = torch.tensor(row)
    return model(input_ids=ids, attention_mask=(ids > 0).long()).logits


def wanted(examples: list[Example]) -> torch.Tensor:
    """1 where a text has a category."""
    return torch.tensor([[float(label in labels) for label in LABELS] for _, labels in examples])


def train(minutes: float, resume: bool, pause_file: Path | None) -> None:
    """AdamW with a rate that falls over the last half."""
    tokenizer = load_tokenizer()
    torch.manual_seed(6)
    model = build(tokenizer.get_vocab_size())
    adam = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.05)

    def take(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    checkpoint, step, spent = Checkpoint(work_dir(NAME) / "checkpoint.pt"), 0, 0.0
    if resume and checkpoint.path.exists():
        step, spent = restore(checkpoint.path, checkpoint.load(), take)
    else:
        model.bert.load_state_dict(read_encoder(ENCODER), strict=False)
    rng = random.Random(11 + step)

    def snapshot() -> dict[str, Any]:
        return {"model": model.state_dict(), "adam": adam.state_dict()}

    model.train()
    budget = Budget(minutes, spent, pause_file)
    for step, fraction in run_steps(budget, checkpoint, snapshot, step):
        examples = [example(rng) for _ in range(TEXTS)]
        with torch.autocast("cpu", torch.bfloat16):
            rows = logits(model, tokenizer, [text for text, _ in examples])
        loss = F.binary_cross_entropy_with_logits(rows.float(), wanted(examples))
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for entry in adam.param_groups:
            entry["lr"] = RATE * learning_rate(step, fraction, 50)
        adam.step()
        if step % 50 == 0:
            right = ((rows > 0) == (wanted(examples) > 0)).all(1).float().mean().item()
            print(f"{budget.spent:.0f}s step {step} loss {loss.item():.4f} right {right:.2f}", flush=True)
