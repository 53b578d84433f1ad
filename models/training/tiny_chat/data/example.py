"""What one training example is."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]


class Letters(str):
    """An answer that is learned letter by letter: each letter of it follows from one letter of the question."""


class Pieces(str):
    """An answer that is learned in these pieces: a word then has the tokens in which the question showed it."""

    parts: tuple[str, ...]

    def __new__(cls, *parts: str) -> "Pieces":
        """Join the pieces and remember them."""
        made = super().__new__(cls, "".join(parts))
        made.parts = parts
        return made


@dataclass(frozen=True)
class Example:
    """A conversation (or plain text) with the key of its problem for the held-out split."""

    kind: str
    key: str
    messages: list[Message] = field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    text: str | None = None
    prompt_chars: int = 0


Maker = Callable[[random.Random], Example]


def user(content: str) -> Message:
    """A turn of the user."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    """A turn of the model: these are the tokens that are learned."""
    return {"role": "assistant", "content": content}


def system(content: str) -> Message:
    """The turn that sets the rules."""
    return {"role": "system", "content": content}


def single(kind: str, key: str, question: str, answer: str) -> Example:
    """One question, one answer."""
    return Example(kind, f"{kind}:{key}", [user(question), assistant(answer)])


_SEPARATORS = [":\n"] * 12 + ["\n", ": ", "\n\n", ".\n", ":\n\n"]


def instruct(rng: random.Random, instruction: str, text: str) -> str:
    """Instruction and input as `/v1/edits` joins them, sometimes as people type them; a question keeps its own sign."""
    separator = rng.choice(_SEPARATORS)
    return instruction + (separator.lstrip(".:") or "\n" if instruction[-1] in ".?" else separator) + text
