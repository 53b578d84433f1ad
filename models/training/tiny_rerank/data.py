"""Groups of one query, its document and documents that only look right."""

import random

from ..common import words as w
from ..tiny_chat.data.context import FACTS
from ..tiny_chat.data.sentences import sentence
from ..tiny_embed.data import INTENTS, lexical, trained_frame
from ..tiny_embed.frames import SLOTS, change, question, render

NEGATIVES = 4
Group = tuple[str, list[str]]  # the first document is the right one


def _event(rng: random.Random, hard: float) -> Group:
    """Wrong documents are other events, or with the share `hard` the same event with one slot changed."""
    frame = trained_frame(rng)
    asked, slots = question(rng, frame) if rng.random() < 0.5 else (render(rng, frame), SLOTS)
    wrong = [change(rng, frame, slots) if rng.random() < hard else trained_frame(rng) for _ in range(NEGATIVES)]
    return asked, [render(rng, frame), *(render(rng, other) for other in wrong)]


def _keywords(rng: random.Random, hard: float) -> Group:
    """The wrong documents lack one word of the query, or all of them."""
    query, document = lexical(rng)
    parts, wanted = document.split(" "), [word.rstrip("s") for word in query.split(" ")]
    wrong = []
    for _ in range(NEGATIVES):
        gone = rng.choice(wanted)
        kept = [w.pseudo_word(rng) if part.rstrip("s") == gone else part for part in parts]
        rng.shuffle(kept)
        wrong.append(" ".join(kept) if rng.random() < hard * 0.7 else lexical(rng)[1])
    return query, [document, *wrong]


def _fact(rng: random.Random, hard: float) -> Group:
    make = rng.choice(FACTS)
    statement, asked, _, subject = make(rng)
    wrong = []
    while len(wrong) < NEGATIVES:
        other = (make if rng.random() < 0.3 + 0.4 * hard else rng.choice(FACTS))(rng)
        if other[3] != subject:
            wrong.append(other[0])
    return asked, [statement, *wrong]


def _intent(rng: random.Random, _: float) -> Group:
    first, *others = rng.sample(INTENTS, NEGATIVES + 1)
    query, right = rng.sample(first, 2)
    return query, [right, *(rng.choice(other) for other in others)]


def _passage(rng: random.Random, hard: float) -> Group:
    asked, documents = (_event if rng.random() < 0.6 else _fact)(rng, hard)
    filler = [sentence(rng) for _ in range(rng.randrange(1, 4))]

    def wrap(text: str) -> str:
        lines = [*filler, text]
        rng.shuffle(lines)
        return " ".join(lines)

    return asked, [wrap(text) for text in documents]


def group(rng: random.Random, hard: float) -> Group:
    """Any group; events most often. `hard` grows while training: matching words comes before telling near-duplicates apart."""
    return rng.choices([_event, _keywords, _fact, _intent, _passage], [4, 3, 1.2, 0.8, 1.5])[0](rng, hard)
