"""The mixture: what is drawn how often, and the split that keeps held-out problems out."""

import random

from ...common.split import is_held_out
from . import arithmetic as sums
from . import context, edits, facts, stories, talk, tools
from .example import Example, Maker

MIX: list[tuple[Maker, float]] = [
    (edits.upper, 3.6), (edits.lower, 3.0), (edits.spell, 4.6), (edits.replace, 6.0), (edits.delete, 1.0),
    (edits.copy, 0.8), (edits.plural, 1.2), (edits.past, 0.7), (edits.punctuate, 0.4), (edits.sort, 0.6),
    (edits.reverse, 0.4), (edits.count, 0.3), (edits.nth, 0.5), (sums.addition, 2.8), (sums.subtraction, 2.8),
    (sums.multiplication, 0.5), (sums.word_problem, 0.5), (facts.facts, 3.4), (context.context, 6.0),
    (context.json_from_text, 2.6), (context.json_from_list, 0.9), (tools.tools, 2.3), (talk.recall, 1.2),
    (talk.refusal, 0.8), (talk.greeting, 0.4), (talk.obey, 0.6), (stories.story, 0.7), (stories.related, 0.6),
]
COPYING: list[tuple[Maker, float]] = [
    (edits.copy, 5), (edits.upper, 2), (edits.lower, 2), (edits.replace, 3), (edits.delete, 1.5), (edits.nth, 1),
    (edits.reverse, 1), (edits.spell, 1.5), (context.context, 2),
]
MAKERS: dict[str, Maker] = {maker.__name__: maker for maker, _ in MIX}


def draw(rng: random.Random, curriculum: float = 0.0) -> Example:
    """A training example; `curriculum` is the share taken from the copying tasks."""
    table = COPYING if rng.random() < curriculum else MIX
    makers, weights = [maker for maker, _ in table], [weight for _, weight in table]
    while True:
        made = rng.choices(makers, weights)[0](rng)
        if not is_held_out(made.key):
            return made


def chain(rng: random.Random, curriculum: float = 0.0) -> Example:
    """Mostly one problem; one in eight conversations goes on with a second or third."""
    first = draw(rng, curriculum)
    if first.text is not None or first.tools or rng.random() > 0.12:
        return first
    messages = list(first.messages)
    for _ in range(rng.choice([1, 1, 2])):
        follow = draw(rng)
        if follow.text is None and not follow.tools and follow.messages[0]["role"] == "user":
            messages += follow.messages
    return Example("chain", first.key, messages)


def held_out(rng: random.Random, maker: Maker, kind: str) -> Example:
    """An example of this kind that training never saw."""
    while True:
        made = maker(rng)
        if made.kind == kind and is_held_out(made.key):
            return made
