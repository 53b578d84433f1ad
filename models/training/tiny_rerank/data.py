"""Groups of one query, its document and documents that only look right."""

import random

from ..common import words as w
from ..tiny_chat.data.context import FACTS
from ..tiny_chat.data.sentences import sentence
from ..tiny_embed.data import INTENTS, lexical, trained_frame
from ..tiny_embed.frames import change, question, render

NEGATIVES = 4
Group = tuple[str, list[str]]  # the first document is the right one


def _event(rng: random.Random) -> Group:
    frame = trained_frame(rng)
    if rng.random() < 0.5:
        asked, slots = question(rng, frame)
        wrong = [render(rng, change(rng, frame, slots)) for _ in range(NEGATIVES)]
        return asked, [render(rng, frame), *wrong]
    return render(rng, frame), [render(rng, frame), *(render(rng, change(rng, frame)) for _ in range(NEGATIVES))]


def _keywords(rng: random.Random) -> Group:
    """The wrong documents lack one word of the query."""
    query, document = lexical(rng)
    parts, wanted = document.split(" "), [word.rstrip("s") for word in query.split(" ")]
    wrong = []
    for _ in range(NEGATIVES):
        gone = rng.choice(wanted)
        kept = [w.pseudo_word(rng) if part.rstrip("s") == gone else part for part in parts]
        rng.shuffle(kept)
        wrong.append(" ".join(kept) if rng.random() < 0.7 else lexical(rng)[1])
    return query, [document, *wrong]


def _fact(rng: random.Random) -> Group:
    make = rng.choice(FACTS)
    statement, asked, _, subject = make(rng)
    wrong = []
    while len(wrong) < NEGATIVES:
        other = (make if rng.random() < 0.7 else rng.choice(FACTS))(rng)
        if other[3] != subject:
            wrong.append(other[0])
    return asked, [statement, *wrong]


def _intent(rng: random.Random) -> Group:
    first, *others = rng.sample(INTENTS, NEGATIVES + 1)
    query, right = rng.sample(first, 2)
    return query, [right, *(rng.choice(other) for other in others)]


def _passage(rng: random.Random) -> Group:
    asked, documents = (_event if rng.random() < 0.6 else _fact)(rng)
    filler = [sentence(rng) for _ in range(rng.randrange(1, 4))]

    def wrap(text: str) -> str:
        lines = [*filler, text]
        rng.shuffle(lines)
        return " ".join(lines)

    return asked, [wrap(text) for text in documents]


def group(rng: random.Random) -> Group:
    """Any group; events most often."""
    return rng.choices([_event, _keywords, _fact, _intent, _passage], [5, 2, 1.5, 0.7, 1])[0](rng)
