"""About three hundred facts, each with several wordings of which some are never trained."""

import random

from ...common import words as w
from .example import Example, single


def _table(text: str) -> list[tuple[str, str]]:
    rows = (row.split(":") for row in text.split())
    return [(a.replace("_", " "), b.replace("_", " ")) for a, b in rows]


CAPITALS = _table("""France:Paris Germany:Berlin Spain:Madrid Italy:Rome England:London Japan:Tokyo
China:Beijing Russia:Moscow Egypt:Cairo Greece:Athens Poland:Warsaw Austria:Vienna Portugal:Lisbon
Ireland:Dublin Norway:Oslo Sweden:Stockholm Finland:Helsinki Denmark:Copenhagen Canada:Ottawa Cuba:Havana
Peru:Lima Kenya:Nairobi India:Delhi Turkey:Ankara Hungary:Budapest Belgium:Brussels Switzerland:Bern
Australia:Canberra Brazil:Brasilia Argentina:Buenos_Aires Mexico:Mexico_City Chile:Santiago Iceland:Reykjavik
Ukraine:Kyiv Romania:Bucharest Bulgaria:Sofia Croatia:Zagreb Iran:Tehran Iraq:Baghdad Thailand:Bangkok
Vietnam:Hanoi Nepal:Kathmandu Morocco:Rabat Ghana:Accra Scotland:Edinburgh""")
OPPOSITES = _table("""hot:cold big:small fast:slow old:new happy:sad tall:short light:dark clean:dirty
loud:quiet hard:soft open:closed up:down left:right early:late full:empty rich:poor strong:weak wet:dry
high:low near:far good:bad day:night black:white yes:no first:last true:false cheap:expensive in:out
begin:end buy:sell give:take win:lose deep:shallow wide:narrow sweet:sour safe:dangerous""")
SOUNDS = _table("""dog:woof cat:meow cow:moo duck:quack sheep:baa lion:roar bee:buzz owl:hoot frog:croak
horse:neigh pig:oink mouse:squeak snake:hiss wolf:howl""")
YOUNG = _table("""dog:puppy cat:kitten cow:calf horse:foal sheep:lamb pig:piglet duck:duckling hen:chick
bear:cub goat:kid frog:tadpole lion:cub goose:gosling""")
HUES = _table("""the_sky:blue grass:green snow:white blood:red a_banana:yellow a_carrot:orange coal:black
the_sun:yellow a_lemon:yellow milk:white a_tomato:red chocolate:brown a_frog:green the_sea:blue
a_strawberry:red a_pig:pink an_elephant:grey""")
LEGS = _table("""dog:four cat:four cow:four horse:four spider:eight bird:two duck:two bee:six ant:six
snake:no fish:no human:two""")
PARTS = _table("""minutes_in_an_hour:60 seconds_in_a_minute:60 hours_in_a_day:24 days_in_a_week:7
months_in_a_year:12 days_in_a_year:365 weeks_in_a_year:52 legs_on_a_chair:4 letters_in_the_alphabet:26
centimetres_in_a_metre:100 metres_in_a_kilometre:1000 grams_in_a_kilogram:1000 wheels_on_a_car:4
wheels_on_a_bicycle:2 days_in_a_weekend:2 seasons_in_a_year:4 sides_in_a_triangle:3 sides_in_a_square:4
years_in_a_century:100 items_in_a_dozen:12""")
LANGUAGES = _table("""France:French Germany:German Spain:Spanish Italy:Italian England:English Japan:Japanese
China:Chinese Russia:Russian Greece:Greek Poland:Polish Portugal:Portuguese Norway:Norwegian Sweden:Swedish
Denmark:Danish Hungary:Hungarian Turkey:Turkish Brazil:Portuguese Mexico:Spanish Austria:German""")
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = """January February March April May June July August September October November December""".split()
KINDS = [("animal", "an animal", w.ANIMALS), ("food", "a food", w.FOODS), ("colour", "a colour", w.COLOURS)]

_CAPITAL = ["What is the capital of {}?", "Capital of {}?", "Which city is the capital of {}?",
            "Tell me the capital of {}.", "Name the capital of {}.", "{}: what is the capital?"]
_OPPOSITE = ["What is the opposite of {}?", "Opposite of {}:", "Give the opposite of {}.", "The opposite of {} is"]
_SOUND = ["What sound does {} make?", "What does {} say?", "Which sound does {} make?", "Tell me the sound of {}."]
_YOUNG = ["What is a young {} called?", "What do you call a baby {}?", "Name for a baby {}?", "A young {} is called"]
_HUE = ["What colour is {}?", "Which colour is {}?", "Tell me the colour of {}.", "What is the colour of {}?", "What color is {}?"]
_LEGS = ["How many legs does {} have?", "How many legs has {}?", "Number of legs of {}?", "Tell me how many legs {} has."]
_PARTS = ["How many {} are there?", "How many {}?", "Tell me how many {} there are.", "What is the number of {}?"]
_LANGUAGE = ["Which language do people speak in {}?", "What language is spoken in {}?", "Language of {}?",
             "What do people speak in {}?"]


def _row(rng: random.Random, relation: str, rows: list[tuple[str, str]], asks: list[str], answer: str, a_: bool = False) -> Example:
    subject, value = rng.choice(rows)
    shown = w.article(subject) if a_ else subject
    form = rng.randrange(len(asks))
    text = answer.format(subject=subject, shown=shown, value=value, Shown=shown[0].upper() + shown[1:], a_value=w.article(value))
    return single("facts", f"{relation}/{subject}/{form}", asks[form].format(shown if "{}" in asks[form] else subject), text)


def _opposite(rng: random.Random) -> Example:
    rows = OPPOSITES + [(b, a) for a, b in OPPOSITES]
    return _row(rng, "opposite", rows, _OPPOSITE, "The opposite of {subject} is {value}.")


def _calendar(rng: random.Random) -> Example:
    unit, names = rng.choice([("day", DAYS), ("month", MONTHS)])
    index, after = rng.randrange(len(names)), rng.random() < 0.5
    other = names[(index + (1 if after else -1)) % len(names)]
    side = "after" if after else "before"
    form = rng.randrange(4)
    ask = ["Which {u} comes {s} {n}?", "What {u} comes {s} {n}?", "What is the {u} {s} {n}?", "Name the {u} {s} {n}."][form]
    return single("facts", f"{side}/{names[index]}/{form}", ask.format(u=unit, s=side, n=names[index]), f"{other} comes {side} {names[index]}.")


def kind(rng: random.Random) -> Example:
    """Whether a thing is an animal, a food or a colour."""
    _, _, members = rng.choice(KINDS)
    thing, (name, named, right) = rng.choice(members), rng.choice(KINDS)
    form = rng.randrange(3)
    shown = thing if members is w.COLOURS else w.article(thing)
    ask = ["Is {} {}?", "Would you say that {} is {}?", "True or not: {} is {}?"][form].format(shown, named)
    return single("facts", f"kind/{thing}/{name}/{form}", ask, "Yes." if thing in right else "No.")


def facts(rng: random.Random) -> Example:
    """One question about the world."""
    drawn = rng.random()
    if drawn < 0.26:
        return _row(rng, "capital", CAPITALS, _CAPITAL, "The capital of {subject} is {value}.")
    if drawn < 0.42:
        return _opposite(rng)
    if drawn < 0.54:
        return _calendar(rng)
    if drawn < 0.61:
        return _row(rng, "sound", SOUNDS, _SOUND, "{Shown} says {value}.", a_=True)
    if drawn < 0.67:
        return _row(rng, "young", YOUNG, _YOUNG, "A young {subject} is called {a_value}.")
    if drawn < 0.74:
        return _row(rng, "hue", HUES, _HUE, "{Shown} is {value}.")
    if drawn < 0.8:
        return _row(rng, "legs", LEGS, _LEGS, "{Shown} has {value} legs.", a_=True)
    if drawn < 0.88:
        return _row(rng, "parts", PARTS, _PARTS, "There are {value} {subject}.")
    if drawn < 0.95:
        return _row(rng, "language", LANGUAGES, _LANGUAGE, "People speak {value} in {subject}.")
    return kind(rng)
