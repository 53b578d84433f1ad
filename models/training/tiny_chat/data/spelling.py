"""Misspelt words whose repair can be known, and the task of repairing them."""

import random
from collections import defaultdict
from functools import cache

from ...common import words as w
from .example import Example, instruct, single
from .sentences import ADVERBS, WIDE, WIDE_ADJECTIVES, WIDE_VERBS, known_sentence, wide_sentence

SPELL = """Fix the spelling|Fix the spelling mistakes|Correct the spelling|Fix spelling|Fix the typos
Correct the spelling mistakes|Repair the spelling|Fix the mistakes""".replace("\n", "|").split("|")
_CHANGED = "aeioutrnsl"
# Words by the places that they can take in the sentences: two words of one class are not told apart by what stands around them.
CLASSES: dict[str, list[str]] = {
    "noun": [*w.NOUNS, *WIDE, *w.FAMILY], "plural": [*map(w.plural, [*w.NOUNS, *WIDE])], "adjective": [*w.ADJECTIVES, *w.COLOURS, *WIDE_ADJECTIVES],
    "name": [name.lower() for name in w.NAMES], "past": list(w.PAST.values()), "verb": list(w.PAST), "present": [*map(w.third_person, w.PAST), *WIDE_VERBS],
    "number": w.NUMBERS, "adverb": [*ADVERBS, *(part for time in w.TIMES for part in time.lower().split())],
    "place": [part for place in w.PLACES for part in place.split()],
    "small": "a an the and is are was there has my your his her our their we they you i this that every".split(),
}


def _mistaken(word: str, at: int) -> list[list[str]]:
    """The four kinds of mistake at one inner letter: swapped with the next, dropped, doubled, changed (ten ways)."""
    head, letter, following, tail = word[:at], word[at], word[at + 1], word[at + 2 :]
    swapped = [head + following + letter + tail] if letter != following else []
    return [swapped, [head + following + tail], [head + letter * 2 + following + tail], [head + other + following + tail for other in _CHANGED]]


@cache
def _origins() -> dict[str, set[tuple[str, str]]]:
    """For every text that one mistake can make: the words, with their classes, that it may have been; a word is its own origin too."""
    found: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for name, words in CLASSES.items():
        for word in words:
            found[word].add((word, name))
            inner = range(1, len(word) - 1) if len(word) >= 4 else ()
            for broken in (text for at in inner for kind in _mistaken(word, at) for text in kind):
                found[broken].add((word, name))
    return found


def repairable(shown: str, meant: str, alone: bool = False) -> bool:
    """Whether what is shown can only have been what is meant.

    `bll` for an animal or a thing may be a ball or a bell, a dropped letter makes pears of pearls, and an invented word that is one letter from a known
    one may be either: nobody can repair these, so they are no problems. Where only one of the candidates fits into the sentence, the repair is known;
    words `alone` have no sentence around them."""
    seen, wanted = (text.strip(".,").lower() for text in (shown, meant))
    origins = _origins().get(seen, set())
    if seen == wanted:
        # A correct known word stays what it is; an unknown one must not look like a mistake.
        return not origins or any(word == seen for word, _ in origins)
    classes = {name for word, name in origins if word == wanted}
    return not any(word != wanted and (alone or name in classes) for word, name in origins)


def misspell(rng: random.Random, text: str, mistakes: int) -> str:
    """Swap, drop, double or change one inner letter of some longer words."""
    parts = text.split(" ")
    usable = [i for i, part in enumerate(parts) if len(part.rstrip(".,")) >= 4 and part.rstrip(".,").isalpha()]
    for index in rng.sample(usable, min(mistakes, len(usable))):
        end = len(parts[index].rstrip(".,"))
        at, kind = rng.randrange(1, end - 1), rng.random()
        kinds = _mistaken(parts[index], at)
        chosen = 0 if kind < 0.4 and kinds[0] else 1 if kind < 0.65 else 2 if kind < 0.85 else 3
        parts[index] = rng.choice(kinds[chosen])
    return " ".join(parts)


def _fair(broken: str, text: str, alone: bool) -> bool:
    return all(repairable(shown, meant, alone) for shown, meant in zip(broken.split(" "), text.split(" "), strict=True))


def broken_words(rng: random.Random, words: list[str]) -> Example:
    """One to three words of a list, without a sentence."""
    while True:
        text = " ".join(rng.choice(words) for _ in range(rng.choice([1, 1, 2, 3])))
        broken = misspell(rng, text, rng.choice([1, 1, 2]))
        if _fair(broken, text, alone=True):
            return single("spell", text, instruct(rng, rng.choice(SPELL), broken), text)


def spell(rng: random.Random) -> Example:
    """Repair spelling; one in ten has nothing to repair, one in four keeps an unknown word."""
    while True:
        text = known_sentence(rng) if rng.random() < 0.75 else wide_sentence(rng)
        broken = misspell(rng, text, rng.choice([0, 1, 1, 1, 2, 2, 2, 3]))
        if rng.random() < 0.25:
            old = rng.choice([part for part in text.split(" ") if part[0].islower()] or [text.split(" ")[0]])
            if f" {old} " in f" {broken} ":
                new = w.pseudo_word(rng, 2)
                text, broken = (f" {t} ".replace(f" {old} ", f" {new} ", 1).strip() for t in (text, broken))
        if _fair(broken, text, alone=False):
            return single("spell", text, instruct(rng, rng.choice(SPELL), broken), text)
