"""Short exercises for single skills: the letters of a token, copying what no grammar can guess, exchanging one word, sums of digits.

Their keys are those of the full tasks, so that a problem that is held out there is held out here as well."""

import json
import random

from ...common import words as w
from ...common.split import is_held_out
from .context import ABSENT
from .edits import COPY, LOWER, UPPER, exchanged
from .example import Example, Letters, instruct, single
from .sentences import WIDE, WIDE_ADJECTIVES, WIDE_VERBS, some_word
from .spelling import broken_words

KNOWN = sorted({
    *w.NOUNS, *w.ADJECTIVES, *w.COLOURS, *w.FAMILY, *w.NUMBERS, *w.NAMES, *w.CITIES, *w.PAST, *w.PAST.values(), *WIDE, *WIDE_ADJECTIVES, *WIDE_VERBS,
    *(word for phrase in [*w.PLACES, *w.TIMES] for word in phrase.split()), *(w.plural(noun) for noun in w.NOUNS),
    *"the a an is are was were and has have my your his her our their we they you I there this that every quickly slowly again now here often never".split(),
})


def word(rng: random.Random) -> str:
    """A word of the lists, each as often as the others, or an invented one."""
    kind = rng.random()
    if kind < 0.62:
        return rng.choice(KNOWN)
    return w.pseudo_word(rng) if kind < 0.85 else w.open_word(rng)


def some(rng: random.Random, counts: list[int]) -> list[str]:
    """Different words in an order that means nothing."""
    return list(dict.fromkeys(word(rng) for _ in range(rng.choice(counts))))


def upper_words(rng: random.Random) -> Example:
    """Words to capitals: every token has to be spelled."""
    text = " ".join(some(rng, [1, 1, 1, 2, 2, 3, 4, 6]))
    return single("upper", text.lower(), instruct(rng, rng.choice(UPPER), text), text.upper())


def lower_words(rng: random.Random) -> Example:
    """Capitals to small letters, one by one."""
    text = " ".join(some(rng, [1, 1, 2, 2, 3, 4, 6, 8]))
    shown = text.upper() if rng.random() < 0.75 else text.title()
    return single("lower", text.lower(), instruct(rng, rng.choice(LOWER), shown), Letters(text.lower()))


def copy_words(rng: random.Random) -> Example:
    """Words in no order, so that only the text tells what comes next."""
    text = " ".join(some(rng, [1, 2, 3, 4, 6, 9]))
    return single("copy", text, instruct(rng, rng.choice(COPY), text), text)


def replace_words(rng: random.Random) -> Example:
    """One word for another in a few words."""
    items = some(rng, [1, 2, 2, 3, 3, 4, 6])
    old, new = rng.choice(items), word(rng)
    text = " ".join(items)
    form = rng.choice(['Replace "{}" with "{}"', 'Replace "{}" with "{}"', "Replace {} with {}", 'Change "{}" to "{}"', "Change {} to {}",
                       'Replace the word "{}" with "{}"', "Swap {} for {}"])
    edited = exchanged(text, old, new, '"' in form)
    return single("replace", f"{text}/{old}", instruct(rng, form.format(old, new), text), edited)


def spell_words(rng: random.Random) -> Example:
    """One to three broken words of the lists."""
    return broken_words(rng, KNOWN)


def look_up(rng: random.Random) -> Example:
    """Names with values, one of which is asked for; one in four asks for a name that is not there."""
    names = some(rng, [2, 2, 3, 4, 5])
    values = [str(rng.randrange(1, 1000)) if rng.random() < 0.3 else word(rng) for _ in names]
    name, value = rng.choice(list(zip(names, values, strict=True)))
    sign, end = rng.choice([(": ", "\n"), (" = ", ", "), (" is ", ". "), (" has ", ". ")])
    text = end.join(f"{n}{sign}{v}" for n, v in zip(names, values, strict=True))
    ask = rng.choice(["What is {}?", "{}?", "Give the value of {}.", "What belongs to {}?"])
    if rng.random() < 0.25 and (other := word(rng)) not in names:
        return single("look-up", f"{text}/{other}", f"{text}\n{ask.format(other)}", ABSENT)
    return single("look-up", f"{text}/{name}", f"{text}\n{ask.format(name)}", f"{name}{sign.rstrip()} {value}")


def _unit(rng: random.Random) -> str | None:
    if rng.random() < 0.45:
        a, b = rng.randrange(10), rng.randrange(10)
        return None if is_held_out("add:{}+{}".format(*sorted((a, b)))) else f"{a} + {b} = {a + b}"
    b = rng.randrange(10)
    a = b + rng.randrange(10)
    return None if is_held_out(f"subtract:{a}-{b}") else f"{a} - {b} = {a - b}"


def units(rng: random.Random) -> Example:
    """Several sums of single digits: the steps of the longer ones."""
    rows = [row for row in (_unit(rng) for _ in range(rng.choice([1, 3, 6, 8]))) if row]
    asked = ", ".join(row.split(" =")[0] for row in rows)
    return single("units", asked, rng.choice(["Calculate {}.", "What is {}?", "{}"]).format(asked), ", ".join(rows) + ".") if rows else units(rng)


def json_words(rng: random.Random) -> Example:
    """Short lists and counts as JSON."""
    items = list(dict.fromkeys(some_word(rng) for _ in range(rng.choice([1, 2, 3, 4]))))
    if rng.random() < 0.5:
        ask = rng.choice(["Write as a JSON array: ", "Turn into a JSON list: ", "Make a JSON array of: "])
        return single("json", ",".join(items), ask + ", ".join(items), json.dumps(items))
    counts = {w.plural(item): rng.randrange(1, 60) for item in items}
    text = ", ".join(f"{n} {item}" for item, n in counts.items())
    ask = rng.choice(["Write as a JSON object: ", "Turn the list into a JSON object: ", "Give the counts as JSON: "])
    return single("json", text, ask + text, json.dumps(counts))
