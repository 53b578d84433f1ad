"""Held-out retrieval problems: queries, candidates and which candidate is right."""

import random
from dataclasses import dataclass

from ..tiny_chat.data.sentences import sentence
from .data import held_out_frame, lexical
from .frames import change, question, render

CANDIDATES = 200
FAMILY = 5


@dataclass(frozen=True)
class Trial:
    """Row i of `queries` is answered by row `right[i]` of `documents`."""

    queries: list[str]
    documents: list[str]
    right: list[int]


def paraphrases(seed: str) -> Trial:
    """Forty events with four one-slot changes each: find the sentence with exactly the same meaning."""
    rng, queries, documents = random.Random(seed), [], []
    while len(documents) < CANDIDATES:
        frame = held_out_frame(rng)
        members = [frame]
        while len(members) < FAMILY:
            other = change(rng, frame)
            if other not in members:
                members.append(other)
        for member in members:
            documents.append(render(rng, member))
            queries.append(render(rng, member))
    return Trial(queries, documents, list(range(CANDIDATES)))


def questions(seed: str) -> Trial:
    """Each question names some slots; its four distractors differ in one of these."""
    rng, queries, documents, right = random.Random(seed), [], [], []
    while len(documents) < CANDIDATES:
        frame = held_out_frame(rng)
        asked, slots = question(rng, frame)
        queries.append(asked)
        right.append(len(documents))
        documents.append(render(rng, frame))
        documents += [render(rng, change(rng, frame, slots)) for _ in range(FAMILY - 1)]
    return Trial(queries, documents, right)


def _holds(document: str, query: str) -> bool:
    words = {word.rstrip("s") for word in document.split(" ")}
    return all(word.rstrip("s") in words for word in query.split(" "))


def unseen_words(seed: str) -> Trial:
    """One to three words out of texts of mostly invented words; only one text holds them all."""
    rng, pairs = random.Random(seed), []
    while len(pairs) < CANDIDATES:
        query, document = lexical(rng)
        if not any(_holds(other, query) or _holds(document, asked) for asked, other in pairs):
            pairs.append((query, document))
    return Trial([query for query, _ in pairs], [document for _, document in pairs], list(range(CANDIDATES)))


def passages(seed: str) -> Trial:
    """Sixty families of ten passages that share their other sentences; one sentence decides."""
    rng, queries, documents, right = random.Random(seed), [], [], []
    while len(documents) < 3 * CANDIDATES:
        frame = held_out_frame(rng)
        asked, slots = question(rng, frame)
        filler = [sentence(rng) for _ in range(3)]
        queries.append(asked)
        right.append(len(documents))
        for member in [frame, *(change(rng, frame, slots) for _ in range(9))]:
            lines = [*filler, render(rng, member)]
            rng.shuffle(lines)
            documents.append(" ".join(lines))
    return Trial(queries, documents, right)
