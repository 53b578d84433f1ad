"""The mixture: what is drawn how often, and the split that keeps held-out problems out."""

import random

from ...common.split import is_held_out
from . import arithmetic as sums
from . import context, drills, edits, facts, sentiment, spelling, stories, talk, tools, topics, translate
from .example import Example, Maker

MIX: list[tuple[Maker, float]] = [
    (edits.upper, 8.0), (edits.lower, 6.0), (spelling.spell, 24.0), (edits.replace, 8.0), (edits.delete, 1.0),
    (edits.copy, 0.8), (edits.plural, 1.2), (edits.past, 0.7), (edits.punctuate, 0.4), (edits.sort, 0.6),
    (edits.reverse, 0.4), (edits.count, 0.3), (edits.nth, 0.5), (sums.addition, 4.0), (sums.subtraction, 4.0),
    (sums.multiplication, 0.5), (sums.word_problem, 0.5), (facts.facts, 14.0), (facts.kind, 5.0), (context.context, 8.0),
    (context.json_from_text, 2.6), (context.json_from_list, 0.9), (tools.tools, 3.5), (talk.recall, 1.2),
    (talk.refusal, 0.8), (talk.greeting, 0.4), (talk.obey, 0.6), (stories.story, 0.7), (stories.related, 0.6),
    (context.absent, 1.2), (translate.translate, 4.0), (translate.phrase, 2.5), (sentiment.sentiment, 7.0), (topics.topic, 2.6),
]
DRILLS: list[tuple[Maker, float]] = [
    (drills.upper_words, 7), (drills.lower_words, 6), (drills.replace_words, 9), (drills.copy_words, 1.5), (drills.spell_words, 5),
    (drills.look_up, 2.5), (drills.units, 1.5), (drills.json_words, 1),
]
MAKERS: dict[str, Maker] = {maker.__name__: maker for maker, _ in MIX}


class Mixture:
    """Draws training examples; `drilled` is the share of drills, `scores` say which tasks are needed least."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.drilled = 0.0
        self.scores: dict[str, float] = {}

    def _pick(self, drill: bool) -> Maker:
        table = DRILLS if drill else MIX
        weights = [weight if drill else weight * self._need(maker) for maker, weight in table]
        return self.rng.choices([maker for maker, _ in table], weights)[0]

    def _need(self, maker: Maker) -> float:
        """From 1.5 where everything fails down to 0.4 where nothing does."""
        score = self.scores.get(maker.__name__)
        return 1.0 if score is None else 1.5 - 1.1 * score

    def draw(self, drill: bool) -> Example:
        """A training example."""
        while True:
            made = self._pick(drill)(self.rng)
            if not is_held_out(made.key):
                return made

    def chain(self) -> Example:
        """Mostly one problem; one in eight conversations goes on with a second or third."""
        first = self.draw(self.rng.random() < self.drilled)
        if first.text is not None or first.tools or self.rng.random() > 0.12:
            return first
        messages = list(first.messages)
        for _ in range(self.rng.choice([1, 1, 2])):
            follow = self.draw(self.rng.random() < self.drilled)
            if follow.text is None and not follow.tools and follow.messages[0]["role"] == "user":
                messages += follow.messages
        return Example("chain", first.key, messages)


def held_out(rng: random.Random, maker: Maker, kind: str) -> Example:
    """An example of this kind that training never saw."""
    while True:
        made = maker(rng)
        if made.kind == kind and is_held_out(made.key):
            return made
