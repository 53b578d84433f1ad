"""Instruction and input: the tasks behind `/v1/edits`."""

import random

from ...common import words as w
from .example import Example, Letters, Pieces, instruct, single
from .sentences import known_sentence, sentence, some_word

UPPER = """Make it uppercase|Write in capital letters|Convert to upper case|Make this uppercase|Uppercase
Change to uppercase|Put this in capital letters|Turn this into capitals""".replace("\n", "|").split("|")
LOWER = """Make it lowercase|Write in small letters|Convert to lower case|Make this lowercase|Lowercase
Change to lowercase|Put this in small letters""".replace("\n", "|").split("|")
COPY = "Repeat this|Copy the text|Say this again|Repeat exactly|Write this again|Echo".split("|")
PAST = """Change to past tense|Put this in the past tense|Rewrite in past tense|Make it past tense
Change the sentence to the past""".replace("\n", "|").split("|")
PUNCTUATE = """Add the missing punctuation|Fix the punctuation|Add a capital letter and a full stop
Fix the capital letter and the full stop""".replace("\n", "|").split("|")


def copy(rng: random.Random) -> Example:
    """Say it again: the first thing a copying circuit needs."""
    text = sentence(rng)
    return single("copy", text, instruct(rng, rng.choice(COPY), text), text)


def upper(rng: random.Random) -> Example:
    """To capital letters."""
    text = sentence(rng)
    return single("upper", text.lower(), instruct(rng, rng.choice(UPPER), text), text.upper())


def lower(rng: random.Random) -> Example:
    """To small letters, from capitals or mixed case."""
    text = sentence(rng)
    shown = text.upper() if rng.random() < 0.7 else text.title() if rng.random() < 0.5 else text
    return single("lower", text.lower(), instruct(rng, rng.choice(LOWER), shown), Letters(text.lower()))


def plural(rng: random.Random) -> Example:
    """A closed set of nouns; what is held out is noun and wording together."""
    noun = rng.choice(w.NOUNS + list(w.IRREGULAR_PLURALS) * 2)
    form = rng.randrange(6)
    question = [
        f"What is the plural of {noun}?", f"Plural of {noun}:", f"Give the plural form of {noun}.",
        f"What is the plural of \"{noun}\"?", f"Write the plural of {noun}.", f"Plural of {noun}?",
    ][form]
    return single("plural", f"{noun}/{form}", question, w.plural(noun))


def past(rng: random.Random) -> Example:
    """Present to past tense with a known verb, the rest may be unknown."""
    verb, place = rng.choice(list(w.PAST)), rng.choice(w.PLACES + [""] * 10)
    who = rng.choice(w.NAMES + ["My " + f for f in w.FAMILY] + ["The " + a for a in w.ANIMALS])
    if rng.random() < 0.2:
        who = w.pseudo_word(rng, 2).capitalize()
    what = some_word(rng)
    tail = f" the {what}{' ' + place if place else ''}."
    shown = f"{who} {w.third_person(verb)}{tail}"
    key = f"{who}/{verb}/{what}"
    return single("past", key, instruct(rng, rng.choice(PAST), shown), f"{who} {w.PAST[verb]}{tail}")


def exchanged(text: str, old: str, new: str, quoted: bool) -> str:
    """The text with one word for another.

    A quoted word has other tokens than the same word after a space: it is answered in those that the quotes showed, which is a plain copy."""
    parts, kept = [], ""
    for index, word in enumerate(text.split(" ")):
        bare, space = word.rstrip(".,"), " " if index else ""
        if word.strip(".,") == old:
            parts += [kept, space, new]
            kept = word[len(bare):]
        else:
            kept += space + word
    whole = Pieces(*(part for part in [*parts, kept] if part))
    return whole if quoted else str(whole)


def replace(rng: random.Random) -> Example:
    """Replace one word by another."""
    text = sentence(rng)
    choices = [part.strip(".,") for part in text.split(" ") if len(part.strip(".,")) > 1]
    if not choices:
        return replace(rng)
    old, new = rng.choice(choices), some_word(rng)
    form = rng.choice(
        ['Replace "{}" with "{}"', "Replace {} with {}", 'Change "{}" to "{}"', "Change {} to {}",
         'Replace the word "{}" with "{}"', "Swap {} for {}"]
    )
    edited = exchanged(text, old, new, '"' in form)
    return single("replace", f"{text}/{old}", instruct(rng, form.format(old, new), text), edited)


def delete(rng: random.Random) -> Example:
    """Take one word out."""
    text = sentence(rng)
    parts = text.rstrip(".").split(" ")
    singles = [p for p in parts if parts.count(p) == 1]
    if len(parts) < 3 or not singles:
        return delete(rng)
    word = rng.choice(singles)
    kept = " ".join(p for p in parts if p != word) + ("." if text.endswith(".") else "")
    form = rng.choice(['Remove the word "{}"', "Delete {}", 'Remove "{}"', "Delete the word {}"])
    return single("delete", f"{text}/{word}", instruct(rng, form.format(word), text), kept)


def punctuate(rng: random.Random) -> Example:
    """Capital letter at the start, full stop at the end."""
    text = known_sentence(rng)
    first = text.split(" ")[0]
    shown = (first.lower() if rng.random() < 0.7 else first) + text[len(first):].rstrip(".")
    return single("punctuate", text, instruct(rng, rng.choice(PUNCTUATE), shown), text)


def sort(rng: random.Random) -> Example:
    """Three to five words in alphabetical order."""
    items = list({some_word(rng) if rng.random() < 0.3 else rng.choice(w.NOUNS) for _ in range(rng.choice([3, 3, 4, 5]))})
    rng.shuffle(items)
    form = rng.choice(["Sort alphabetically: ", "Sort these words: ", "Sort alphabetically:\n", "Put in alphabetical order: "])
    return single("sort", ",".join(sorted(items)), form + ", ".join(items), ", ".join(sorted(items)))


def reverse(rng: random.Random) -> Example:
    """A list of words backwards."""
    items = [some_word(rng) for _ in range(rng.choice([3, 3, 4, 5]))]
    form = rng.choice(["Reverse the list: ", "Reverse the order: ", "Reverse the order of these words: "])
    return single("reverse", ",".join(items), form + ", ".join(items), ", ".join(reversed(items)))


def count(rng: random.Random) -> Example:
    """How many items a list has."""
    items = [some_word(rng) for _ in range(rng.randrange(1, 10))]
    form = rng.choice(["How many items are in this list? ", "Count the items: ", "How many words are in this list? "])
    return single("count", ",".join(items), form + ", ".join(items), str(len(items)))


def nth(rng: random.Random) -> Example:
    """The first or last word of a text."""
    text = sentence(rng).rstrip(".")
    which = rng.choice(["first", "last"])
    form = rng.choice(["What is the {} word of this sentence", "Give the {} word", "Write only the {} word"])
    return single("nth", f"{text}/{which}", instruct(rng, form.format(which), text), text.split(" ")[0 if which == "first" else -1])
