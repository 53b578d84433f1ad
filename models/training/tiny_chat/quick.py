"""Exact match on a few held-out problems, straight from the weights in training."""

import random

import torch
from tokenizers import Tokenizer

from .data.example import Example
from .data.mix import MAKERS, held_out
from .model import Decoder
from .render import prompt_text

# Generator function and the kind of its examples that is asked for.
KINDS = [
    ("facts", "facts"), ("json_from_text", "json"), ("plural", "plural"), ("past", "past"), ("spell", "spell"),
    ("upper", "upper"), ("lower", "lower"), ("addition", "add"), ("subtraction", "subtract"), ("replace", "replace"),
    ("context", "context"), ("tools", "tools"), ("recall", "recall"), ("refusal", "refusal"), ("copy", "copy"),
    ("translate", "translate"), ("phrase", "phrase"), ("sentiment", "sentiment"), ("topic", "topic"),
]


@torch.no_grad()
def complete(model: Decoder, prompts: list[list[int]], longest: int = 96) -> list[list[int]]:
    """Greedy continuation of rows of different lengths, right-padded, without a cache."""
    rows = [list(prompt) for prompt in prompts]
    done = [False] * len(rows)
    for _ in range(longest):
        width = max(len(row) for row in rows)
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
        best = model(ids).argmax(-1)
        for index, row in enumerate(rows):
            if not done[index]:
                token = int(best[index, len(row) - 1])
                done[index] = token in (0, 2)
                row.append(token)
        if all(done):
            break
    return [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]


def quick_scores(model: Decoder, tokenizer: Tokenizer, count: int) -> dict[str, float]:
    """Share of exact answers per kind."""
    scores = {}
    for maker, kind in KINDS:
        rng = random.Random(99)
        examples: list[Example] = [held_out(rng, MAKERS[maker], kind) for _ in range(count)]
        prompts = [tokenizer.encode(prompt_text(e.messages[:-1], e.tools)).ids for e in examples]
        answers = complete(model, prompts)
        texts = [tokenizer.decode([t for t in ids if t not in (0, 2)], skip_special_tokens=False) for ids in answers]
        right = sum(text == e.messages[-1]["content"] for text, e in zip(texts, examples, strict=True))
        scores[kind] = round(right / count, 2)
    return scores
