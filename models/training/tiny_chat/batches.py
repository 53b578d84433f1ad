"""Rows of one conversation each, sorted by length so that little is padded."""

import re
from collections.abc import Iterator

import torch
from tokenizers import Tokenizer

from .data.example import Letters, Pieces
from .data.mix import Mixture
from .render import example_segments

POOL_TOKENS = 12
LONGEST = 640

Row = tuple[list[int], list[float]]


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """One token per letter, which reads as the same text; a space goes with the letter after it."""
    return [token for letter in re.findall(r" ?\S|\s", text) for token in tokenizer.encode(letter).ids]


def tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text, in the division that its kind asks for."""
    if isinstance(text, Letters):
        return letters(tokenizer, text)
    parts = text.parts if isinstance(text, Pieces) else (text,)
    return [token for part in parts for token in tokenizer.encode(part).ids]


def encode(tokenizer: Tokenizer, pieces: list[tuple[str, float]]) -> Row:
    """Token ids and the loss weight of each."""
    ids: list[int] = []
    weights: list[float] = []
    for text, weight in pieces:
        part = tokens(tokenizer, text)
        ids += part
        weights += [weight] * len(part)
    return ids, weights


def _tensors(rows: list[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    x = torch.zeros(len(rows), longest, dtype=torch.long)
    w = torch.zeros(len(rows), longest)
    for index, (ids, weights) in enumerate(rows):
        x[index, : len(ids)] = torch.tensor(ids)
        w[index, : len(ids)] = torch.tensor(weights)
    return x, w


def batches(tokenizer: Tokenizer, mixture: Mixture, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Endless batches of about `size` tokens; the mixture is read anew for every pool."""
    while True:
        rows: list[Row] = []
        filled = 0
        while filled < size * POOL_TOKENS:
            row = encode(tokenizer, example_segments(mixture.chain()))
            if len(row[0]) <= LONGEST:
                rows.append(row)
                filled += len(row[0])
        rows.sort(key=lambda row: len(row[0]))
        pool, batch = [], []
        for row in rows:
            if batch and (len(batch) + 1) * len(row[0]) > size:
                pool.append(batch)
                batch = []
            batch.append(row)
        pool.append(batch)
        mixture.rng.shuffle(pool)
        yield from (_tensors(batch) for batch in pool)
