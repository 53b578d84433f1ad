"""Plain sentences to edit and to talk about; one in three carries words that no list has."""

import random

from ...common import words as w

WIDE = """platform model server answer question number letter system user account message file folder
computer keyboard screen network machine engine driver worker queue cache token memory record version
release update script language grammar page chapter title author reader story song music dance game team
player coach winner prize ring road street corner village island mountain valley desert ocean storm cloud
rain snow wind summer winter spring autumn season month minute hour second moment history science nature
energy water fire air earth metal glass plastic cotton leather colour shape circle square corner edge
middle inside outside left right north south east west doctor nurse farmer pilot sailor painter writer
singer student manager lawyer engineer plumber baker customer client partner guest child baby family
crowd nation country capital border law court judge police army peace war truth idea plan goal problem
reason result effect cause change choice chance risk rule test example lesson report letter meeting
project budget market price cost money coin bank tax wage job office factory tool nail screw wire battery
motor engine pump pipe valve sensor signal light sound noise voice word sentence poem dream sleep hunger
pain health medicine hospital heart brain hand finger arm leg foot head hair eye ear nose mouth""".split()
WIDE_VERBS = """runs shows makes keeps sends stops starts uses reads writes counts checks finds builds
moves holds needs gives calls turns opens closes breaks loves hates helps joins leaves meets follows
covers serves fills cuts pulls pushes lifts drops shares saves loads prints stores copies draws plays
sings walks drives flies swims cooks eats drinks sleeps wakes waits speaks listens learns teaches""".split()
WIDE_ADJECTIVES = """small large early late easy difficult cheap expensive public private local global
digital modern ancient quick slow safe dangerous common rare useful careful correct wrong true false
deep shallow wide narrow thick thin rough smooth wild calm busy lazy healthy sick rich poor young
important special normal perfect ready final first last second main open closed free""".split()
ADVERBS = "quickly slowly again now here there often never always together today soon very well".split()


def known_sentence(rng: random.Random) -> str:
    """A sentence of everyday words in the past or present."""
    name, noun, verb = rng.choice(w.NAMES), rng.choice(w.NOUNS), rng.choice(list(w.PAST))
    adjective = rng.choice(w.ADJECTIVES + w.COLOURS)
    form = rng.randrange(8)
    if form == 0:
        return f"{name} {w.PAST[verb]} the {adjective} {noun} {rng.choice(w.PLACES)}."
    if form == 1:
        return f"The {adjective} {noun} is {rng.choice(w.PLACES)}."
    if form == 2:
        return f"{name} and {rng.choice(w.NAMES)} {w.PAST[verb]} {w.article(adjective)} {noun} {rng.choice(w.TIMES)}."
    if form == 3:
        return f"There are {rng.choice(w.NUMBERS)} {adjective} {w.plural(noun)} {rng.choice(w.PLACES)}."
    if form == 4:
        return f"{name} has {w.article(adjective)} {noun} and {w.article(rng.choice(w.ADJECTIVES))} {rng.choice(w.ANIMALS)}."
    if form == 5:
        return f"My {rng.choice(w.FAMILY)} {w.PAST[verb]} {rng.choice(['my', 'your', 'his', 'her', 'our', 'their'])} {noun} {rng.choice(w.TIMES)}."
    if form == 6:
        return f"{rng.choice(['We', 'They', 'I', 'You'])} {verb} {w.plural(noun)} {rng.choice(w.PLACES)} {rng.choice(w.TIMES)}."
    return f"The {rng.choice(w.FAMILY)} {w.third_person(verb)} the {noun} {rng.choice(w.PLACES)}."


def wide_sentence(rng: random.Random) -> str:
    """A sentence of less usual words, often without sense, as users paste them."""
    a, b = rng.choice(WIDE), rng.choice(WIDE + w.NOUNS)
    verb, adjective = rng.choice(WIDE_VERBS), rng.choice(WIDE_ADJECTIVES)
    form = rng.randrange(5)
    if form == 0:
        return f"The {a} {verb} {adjective} {w.plural(b)}."
    if form == 1:
        return f"{rng.choice(['This', 'That', 'Every', 'Our', 'A'])} {adjective} {a} {verb} the {b} {rng.choice(ADVERBS)}."
    if form == 2:
        return f"{rng.choice(['the', 'my', 'your'])} {a} {verb} {rng.choice(ADVERBS)}"
    if form == 3:
        return f"{adjective} {a} and {rng.choice(WIDE_ADJECTIVES)} {b}"
    return f"{a.capitalize()}, {b} and {rng.choice(WIDE)} are {adjective}."


def open_sentence(rng: random.Random) -> str:
    """A sentence with one to all of its words invented."""
    if rng.random() < 0.3:
        return " ".join(w.open_word(rng) for _ in range(rng.randrange(1, 7)))
    parts = (known_sentence if rng.random() < 0.6 else wide_sentence)(rng).split(" ")
    for index in rng.sample(range(len(parts)), min(len(parts), rng.choice([1, 1, 2, 3]))):
        tail = parts[index][-1] if parts[index][-1] in ".," else ""
        parts[index] = w.open_word(rng) + tail
    return " ".join(parts)


def sentence(rng: random.Random) -> str:
    """Any sentence: two in five of the grammar, the rest wider or open vocabulary."""
    kind = rng.random()
    if kind < 0.42:
        return known_sentence(rng)
    return wide_sentence(rng) if kind < 0.64 else open_sentence(rng)


def some_word(rng: random.Random) -> str:
    """A lower-case word, one in three invented."""
    if rng.random() < 0.34:
        return w.pseudo_word(rng)
    return rng.choice(w.NOUNS + w.ADJECTIVES + w.COLOURS + WIDE)
