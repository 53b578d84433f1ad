"""Chats as tokens: the same form as the chat template that is exported."""

import random
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from .code import TOKENS
from .questions import FOREIGN, GREETING, GREETINGS, NO_IMAGE, Question, as_typed, question, questions
from .scenes import View, view

END, SYSTEM, USER, ASSISTANT, IMAGE = SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<image>"]
RULES = ("You are a helpful assistant.", "You are a helpful assistant that answers questions about images.", "Be brief.", "Answer in one word.", "You describe images.",
         "You are an assistant. Answer the user's questions.", "Look carefully at the image.")
CHAT_TEMPLATE = """{%- for message in messages -%}
{{- '<|' + message.role + '|>' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content | selectattr('type', 'equalto', 'image') -%}{{- '<image>' -}}{%- endfor -%}
{%- for part in message.content | selectattr('type', 'equalto', 'text') -%}{{- part.text -}}{%- endfor -%}
{%- endif -%}
{%- if message.role == 'assistant' -%}{{- '<|end|>' -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}
"""
PLACES = TOKENS * TOKENS  # embeddings of an image
QUESTIONS = 9  # about an image
CHATS = 0.15  # share of questions that follow another one
SYSTEM_TURNS, BARE = 0.15, 0.04  # shares of batches with a system turn, and without images
FIRST = 3.0  # weight of the first token of an answer, which is often all of it; captions have many
LONGEST = 26  # tokens of questions and answers that follow each other
BUCKETS = 7  # of questions of similar length


@dataclass(frozen=True)
class Turns:
    """What follows the image: questions and answers as tokens."""

    owner: int
    """Which image of the batch they are about."""
    ids: list[int]
    weights: list[float]
    """Of each token in the loss; 0 for what is not learned."""


@dataclass(frozen=True)
class Bucket:
    """Turns of similar length, padded behind."""

    owner: Tensor
    ids: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Batch:
    """Questions about several images; the text up to the image is one for all."""

    views: list[View]
    prefix: list[int]
    buckets: list[Bucket]


class Writer:
    """Writes batches of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.id = {mark: tokenizer.token_to_id(mark) for mark in SPECIAL}

    def words(self, text: str) -> list[int]:
        """Token ids of plain text."""
        return self.tokenizer.encode(text).ids

    def prefix(self, rules: str | None, has_image: bool) -> list[int]:
        """Up to the image of the first message."""
        ids = [self.id[SYSTEM], *self.words(rules)] if rules else []
        return [*ids, self.id[USER], *([self.id[IMAGE]] * PLACES if has_image else [])]

    def turns(self, owner: int, questions_: list[Question]) -> Turns:
        """Questions with their answers, one after another."""
        ids, weights = [], []
        for number, turn in enumerate(questions_):
            asked = [*([self.id[USER]] if number else []), *self.words(turn.text), self.id[ASSISTANT]]
            answer = [*self.words(turn.answer), self.id[END]]
            ids += asked + answer
            weights += [0.0] * len(asked) + [FIRST] + [1.0] * (len(answer) - 1)
        return Turns(owner, ids, weights)

    def draw(self, rng: random.Random, count: int) -> Batch:
        """A batch of training with `count` images."""
        views = [view(rng) for _ in range(count)]
        rules, has_images = rng.choice(RULES) if rng.random() < SYSTEM_TURNS else None, rng.random() >= BARE
        found = []
        for owner, shown in enumerate(views):
            made = questions(shown, rng, QUESTIONS if shown.things else 4) if has_images else _bare(rng)
            while made:
                several = 2 if rng.random() < CHATS else 1
                turns = self.turns(owner, made[:several])
                found.append(turns if len(turns.ids) < LONGEST else self.turns(owner, made[:1]))
                made = made[several:]
        found.sort(key=lambda turns: len(turns.ids))
        bounds = [len(found) * at // BUCKETS for at in range(BUCKETS + 1)]
        return Batch(views, self.prefix(rules, has_images), [_bucket(found[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)])


def _bare(rng: random.Random) -> list[Question]:
    asked = [q for q in (question(view(rng), rng) for _ in range(6)) if q]
    pairs = [*((q.text, NO_IMAGE) for q in asked), (rng.choice(FOREIGN), NO_IMAGE), (rng.choice(GREETINGS), GREETING), (rng.choice(GREETINGS), GREETING)]
    return [Question("bare", as_typed(text, rng), answer) for text, answer in pairs]


def _bucket(turns: list[Turns]) -> Bucket:
    longest = max(len(one.ids) for one in turns)
    ids, weights = torch.zeros(len(turns), longest, dtype=torch.long), torch.zeros(len(turns), longest)
    for at, one in enumerate(turns):
        ids[at, : len(one.ids)], weights[at, : len(one.ids)] = torch.tensor(one.ids), torch.tensor(one.weights)
    return Bucket(torch.tensor([one.owner for one in turns]), ids, weights)
