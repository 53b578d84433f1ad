"""The everyday vocabulary of the generators, and words that no vocabulary has."""

import random

NAMES = """Anna Ben Clara David Emma Frank Grace Henry Iris Jack Kate Leo Mia Noah Olive Paul Rosa Sam
Tina Umar Vera Will Yara Zoe Alice Bruno Carla Dario Elena Felix Gina Hugo Ines Jonas Karim Lena Max
Nina Oscar Petra Quinn Rita Simon Tom Ursula Victor Wanda Yusuf""".split()
ANIMALS = """cat dog bird fish horse cow duck fox bear rabbit mouse goat sheep frog lion tiger owl bee
snake turtle pig hen wolf monkey""".split()
OBJECTS = """ball book box car chair cup door flower garden hat house key lamp letter map pencil phone
picture plate ship shoe spoon stone table train tree window bag bell boat bottle bridge brush button
clock coat fence kite ladder mirror needle pillow ring rope wheel basket blanket camera candle desk drum
guitar hammer jacket knife laptop paper radio ticket watch""".split()
FOODS = """apple banana bread cake carrot cheese cherry egg grape honey lemon milk onion orange pear pie
potato rice soup sugar tomato butter cookie peach salad sandwich""".split()
COLOURS = "red blue green yellow orange purple black white brown pink grey".split()
ADJECTIVES = """big small old new happy sad fast slow tall short warm cold bright dark clean dirty heavy
light quiet loud soft hard sweet brave kind clever funny little lovely round empty full strong weak
simple strange wooden golden tired hungry""".split()
PLACES = """in the garden|at school|in the park|near the river|on the hill|by the sea|in the kitchen
at the market|under the bridge|behind the house|in the forest|at the station|in the city|on the roof
at the office|in the library|next to the church|at the beach""".replace("\n", "|").split("|")
TIMES = """today|yesterday|in the morning|in the evening|after lunch|before dinner|on Monday|on Friday
last week|at night|on Sunday|in the afternoon|last year""".replace("\n", "|").split("|")
FAMILY = "mother father brother sister friend teacher uncle aunt neighbour doctor".split()
CITIES = """Paris Berlin Madrid Rome London Tokyo Beijing Moscow Cairo Athens Warsaw Vienna Lisbon
Dublin Oslo Stockholm Helsinki Copenhagen Ottawa Havana Lima Nairobi Delhi Ankara Budapest Hamburg
Boston Chicago Sydney Porto Milan Lyon""".split()
PAST = dict(
    pair.split(":")
    for pair in """see:saw find:found take:took bring:brought like:liked want:wanted buy:bought sell:sold
make:made hold:held lose:lost open:opened paint:painted wash:washed move:moved watch:watched carry:carried
drop:dropped hide:hid draw:drew need:needed love:loved clean:cleaned break:broke give:gave keep:kept
send:sent throw:threw catch:caught forget:forgot steal:stole choose:chose build:built repair:repaired
follow:followed touch:touched share:shared bake:baked visit:visited call:called""".split()
)
IRREGULAR_PLURALS = dict(
    pair.split(":")
    for pair in """mouse:mice sheep:sheep fish:fish knife:knives leaf:leaves child:children foot:feet
tooth:teeth man:men woman:women goose:geese wolf:wolves life:lives wife:wives half:halves shelf:shelves
person:people ox:oxen deer:deer""".split()
)
NUMBERS = """one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty""".split()
THINGS = OBJECTS + FOODS
NOUNS = OBJECTS + FOODS + ANIMALS

_ONSETS = "b c d f g h j k l m n p qu r s t v w z bl br cl cr dr fl gr pl pr sh st th tr".split()
_VOWELS = "a e i o u a e i o u ai ea ee oo ou".split()
_CODAS = ["", "", "", "n", "r", "s", "l", "t", "m", "d", "x", "ck", "nd", "st", "ng"]


def pseudo_word(rng: random.Random, syllables: int | None = None) -> str:
    """A pronounceable word that means nothing, such as `trovel` or `zinda`."""
    count = syllables or rng.choice([1, 2, 2, 2, 3])
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(count))


def open_word(rng: random.Random) -> str:
    """Something a user may paste: a pseudo-word, letters, a code, a number."""
    kind = rng.random()
    if kind < 0.62:
        return pseudo_word(rng)
    if kind < 0.74:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(2, 8)))
    if kind < 0.82:
        return str(rng.randrange(10 ** rng.randrange(1, 6)))
    if kind < 0.9:
        return pseudo_word(rng) + rng.choice("-_.") + rng.choice([pseudo_word(rng), str(rng.randrange(100))])
    return pseudo_word(rng, 2).capitalize()


def plural(noun: str) -> str:
    """English plural of a noun."""
    if noun in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("s", "x", "ch", "sh")) or noun in ("potato", "tomato"):
        return noun + "es"
    return noun + "s"


def article(noun: str) -> str:
    """The noun with `a` or `an`."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def third_person(verb: str) -> str:
    """`carry` to `carries`, `wash` to `washes`, `see` to `sees`."""
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    if verb.endswith(("sh", "ch", "s", "x")):
        return verb + "es"
    return verb + "s"
