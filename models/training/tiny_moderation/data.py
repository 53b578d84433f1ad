"""Sentences with the categories of harm in them, from templates of mild wording, and harmless ones that look alike."""

import random
import re

from ..common import words as w
from ..common.split import is_held_out
from ..tiny_chat.data.sentences import sentence
from ..tiny_embed.data import INTENTS
from ..tiny_embed.frames import draw_frame, render
from .templates import HARMLESS, HARMFUL, SLOTS

LABELS = ["harassment", "hate", "illicit", "self-harm", "sexual", "violence"]
# Their values carry the harm: an unseen one says nothing to a model without knowledge of the world.
CARRYING = {"insult", "insulting", "bodily", "hurt", "hurting", "weapon", "drug", "crime", "selfharm", "gone", "naked", "trait"}
Example = tuple[str, frozenset[str]]
_SLOT = re.compile(r"{(\w+)}")
_TEMPLATES = {**HARMFUL, "": HARMLESS}


def _value(rng: random.Random, slot: str, held_out: bool) -> str:
    """A value of a slot from the wanted side of the split; names and things may also be invented."""
    if slot in ("name", "thing", "country") and rng.random() < 0.25:
        word = w.pseudo_word(rng, 2)
        return word if slot == "thing" else word.capitalize()
    values = SLOTS[slot]
    if slot in CARRYING:
        return rng.choice(values)
    side = [value for value in values if is_held_out(f"{slot}:{value}", 5) == held_out]
    return rng.choice(side or values)


def _carries(template: str) -> bool:
    """Whether a slot holds the harm, so that the rest of the template may be any words."""
    return any(slot in CARRYING for slot in _SLOT.findall(template))


def _blur(rng: random.Random, template: str) -> str:
    """Some words of a template invented or left out: what its slots hold must be enough."""
    words = []
    for word in template.split(" "):
        roll = 1.0 if "{" in word else rng.random()
        if roll >= 0.2:
            words.append(word)
        elif roll >= 0.1:
            words.append(w.pseudo_word(rng))
    return " ".join(words)


def _fill(rng: random.Random, template: str, held_out: bool, blurred: bool = False) -> str:
    if blurred and not held_out and rng.random() < 0.5:
        template = _blur(rng, template)
    text = _SLOT.sub(lambda match: _value(rng, match[1], held_out), template)
    return text[0].upper() + text[1:]


def _templates(kind: str, held_out: bool) -> list[str]:
    """One side of the split. A harm that the template itself words, and its denial, can only be learned."""
    may_hold_out = [line for line in _TEMPLATES[kind] if _carries(line) == (kind != "")]
    held = [line for line in may_hold_out if is_held_out(f"template:{line}", 5)]
    return held if held_out else [line for line in _TEMPLATES[kind] if line not in held]


def harmful(rng: random.Random, held_out: bool) -> Example:
    """A sentence of one kind of harm; kinds are the joined names of its categories."""
    kind = rng.choice(list(HARMFUL))
    template = rng.choice(_templates(kind, held_out))
    return _fill(rng, template, held_out, blurred=_carries(template)), frozenset(kind.split("+"))


def look_alike(rng: random.Random, held_out: bool) -> Example:
    """A harmless sentence with words of harm, or in the form of a harmful one."""
    template = rng.choice(_templates("", held_out))
    return _fill(rng, template, held_out, blurred=not _carries(template)), frozenset()


def everyday(rng: random.Random) -> Example:
    """A harmless sentence of the other generators."""
    kind = rng.random()
    if kind < 0.6:
        return sentence(rng), frozenset()
    if kind < 0.8:
        return render(rng, draw_frame(rng)), frozenset()
    return rng.choice(rng.choice(INTENTS)), frozenset()


def _casual(rng: random.Random, text: str) -> str:
    """As people type: without a capital, a full stop or both."""
    if rng.random() < 0.3:
        text = text.lower()
    return text.rstrip(".!") if rng.random() < 0.2 else text


def example(rng: random.Random, held_out: bool = False) -> Example:
    """One to four sentences of all sorts, and the categories of all of them."""
    kinds = rng.choices(["harm", "alike", "plain"], [5, 4, 3], k=rng.choices([1, 2, 3, 4], [6, 2, 1, 1])[0])
    parts = []
    for index, kind in enumerate(kinds):
        # One harmful sentence is enough to be found among harmless ones.
        if kind == "harm" and (index == 0 or rng.random() < 0.4):
            parts.append(harmful(rng, held_out))
        else:
            parts.append(everyday(rng) if kind == "plain" else look_alike(rng, held_out))
    rng.shuffle(parts)
    return " ".join(_casual(rng, text) for text, _ in parts), frozenset().union(*(labels for _, labels in parts))
