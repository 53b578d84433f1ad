"""What a text is about: eight topics, freely or out of a list that the question gives."""

import random
import re

from ...common import words as w
from .context import city, person
from .example import Example, instruct, single
from .sentences import some_word

_WORDS: dict[str, dict[str, list[str]]] = {
    "sports": {
        "a": "football tennis basketball hockey golf volleyball rugby baseball swimming boxing".split(),
        "b": "team player coach goalkeeper runner swimmer champion referee striker captain".split(),
        "c": "match game race final tournament championship league season goal medal".split(),
    },
    "food": {
        "a": [*w.FOODS, *"pizza pasta fish meat chicken salt pepper garlic chocolate".split()],
        "b": "cook chef baker waiter kitchen restaurant oven recipe plate bakery".split(),
        "c": "soup cake dinner lunch breakfast pie sauce salad dessert meal".split(),
    },
    "weather": {
        "a": "rain snow wind fog sunshine hail thunder lightning frost ice".split(),
        "b": "storm cloud shower forecast temperature sky breeze heat hurricane blizzard".split(),
        "c": "rainy sunny windy cloudy snowy foggy stormy freezing humid mild".split(),
    },
    "music": {
        "a": "guitar piano violin drum flute trumpet cello harp organ saxophone".split(),
        "b": "band singer orchestra choir pianist drummer composer musician guitarist conductor".split(),
        "c": "song concert album melody tune symphony opera rhythm chorus ballad".split(),
    },
    "travel": {
        "a": "flight train ticket passport suitcase hotel map luggage visa cruise".split(),
        "b": "tourist traveller guide pilot passenger airport station harbour hostel".split(),
        "c": "trip journey holiday tour vacation beach island border voyage excursion".split(),
    },
    "technology": {
        "a": "computer laptop phone robot software server keyboard screen network internet".split(),
        "b": "programmer engineer developer website program app password file database update".split(),
        "c": "code chip battery camera data cable processor memory browser printer".split(),
    },
    "animals": {
        "a": [*w.ANIMALS, *"elephant giraffe kangaroo dolphin whale eagle".split()],
        "b": "puppy kitten zoo farm nest cage foal calf lamb cub".split(),
        "c": "tail fur feather wing paw claw beak horn hoof whisker".split(),
    },
    "health": {
        "a": "fever cough headache cold pain flu allergy wound infection disease".split(),
        "b": "doctor nurse hospital patient clinic dentist surgeon pharmacy ambulance physician".split(),
        "c": "medicine pill vaccine bandage treatment operation injection therapy drug check-up".split(),
    },
}
# {p} a person, {q} another, {where} a city, {n} a number, {any} any word, the rest from the topic's own lists
_FRAMES = {
    "sports": """{p} plays {a} every Sunday.|The {b} won the {c} against {where}.|{p} scored {n} points in the {c}.|The {b} of {where} lost the {c}.
{p} is the best {b} of the {c}.|The {c} ended {n} to 1.|{p} trains for the {a} {c}.|The {a} {b} broke the record.|Fans of {any} cheered when {p} scored.""",
    "food": """{p} cooks {c} with {a} and {a2}.|Add the {a} and stir the {c}.|The {b} serves {c} with {a}.|{p} ate {n} pieces of {a}.|Bake the {a} for {n} minutes.
The {c} tastes of {a}.|{p} is hungry and wants {a}.|The {any} {c} needs more {a}.|{p} bought {a} and {a2} for the {c}.""",
    "weather": """Tomorrow there will be {a} in {where}.|It is {c} in {where} today.|The {b} brings {a} and {a2}.|The {b} over {where} is strong.|It will be {n} degrees and {c}.
After the {a} it was {c}.|The {b} for {where} says {a}.|{p} saw the {b} and the {a}.|The night in {any} will be {c} with {a}.""",
    "music": """{p} plays the {a}.|The {b} sings a new {c}.|The {c} of the {b} was loud.|{p} wrote {n} songs for the {a}.|The {b} from {where} plays the {a}.
{p} practises the {a} for the {c}.|The {b} recorded a {c} called {any}.|We listened to the {c} and the {a}.|The {a} and the {a2} begin the {c}.""",
    "travel": """{p} packs a suitcase for the {c} to {where}.|The {b} lost the {a}.|The {c} from {where} to {where2} took {n} days.|{p} booked a {a} to {where}.
The {b} shows the {a}.|{p} and {q} go on a {c} to {where}.|We left {where} and saw the {c}.|The {a} for the {c} costs {n} euros.|Visit {any} on your next {c}.""",
    "technology": """The {b} fixed the {a}.|{p} bought a new {a} with a fast {c}.|The {a} needs a new {c}.|The {b} stores the {c} on the {a}.|{p} wrote a {b} for the {a}.
The {c} of the {a} is broken.|Restart the {a} and install the {b}.|The new {any} {a} has {n} gigabytes.|{p} forgot the {b} of the {a}.""",
    "animals": """The {a} hunts the {a2} at night.|The {a} has a long {c}.|{p} feeds the {a} and the {b}.|The {b} is home to a {a}.|{n} wild {plural} live in the forest.
The {a} sleeps near its {b}.|The {c} of the {a} is brown.|{p} saw a {a} with a {b}.|The {any} is a kind of {a}.""",
    "health": """The {b} gave {p} a {c}.|{p} has a {a} and stays in bed.|The {c} helps against the {a}.|{p} went to the {b} because of a {a}.|Take the {c} {n} times a day.
The {b} in {where} treats {a}.|The {b} looked at the {a}.|{p} needs a {c} for the {a}.|The {any} {c} cured the {a}.""",
}
TOPICS = list(_FRAMES)
_LISTS = """What is the topic of this text? Choose from {}.|Choose the topic: {}|Which topic fits: {}?|Classify the text as {}|Is this about {}?
Pick one topic from {}|Topic ({})""".replace("\n", "|").split("|")
_FREE = "What is the topic of this text?|What is this text about?|What is the topic?|Give the topic in one word|Topic|Name the topic of this sentence|What is this about?".split("|")


def about(rng: random.Random, topic: str) -> str:
    """One or two sentences on a topic; a third of the names and of the free words are invented."""
    lists = _WORDS[topic]
    frames = _FRAMES[topic].replace("\n", "|").split("|")
    sentences = []
    for frame in rng.sample(frames, rng.choice([1, 1, 2])):
        a, a2 = rng.sample(lists["a"], 2)
        sentences.append(frame.format(a=a, plural=w.plural(a), a2=a2, b=rng.choice(lists["b"]), c=rng.choice(lists["c"]), p=person(rng), q=person(rng), where=city(rng),
                                      where2=city(rng), n=rng.randrange(2, 60), any=w.pseudo_word(rng) if rng.random() < 0.6 else some_word(rng)))
    return re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", " ".join(sentences))


def _listed(rng: random.Random, topics: list[str]) -> str:
    end = rng.choice([" or ", " or ", " and ", ", "])
    return ", ".join(topics[:-1]) + end + topics[-1]


def topic(rng: random.Random) -> Example:
    """Two in three with a list to choose from."""
    right = rng.choice(TOPICS)
    text = about(rng, right)
    if rng.random() < 0.66:
        offered = rng.sample([name for name in TOPICS if name != right], rng.choice([1, 2, 2, 3, 4])) + [right]
        rng.shuffle(offered)
        ask = rng.choice(_LISTS).format(_listed(rng, offered))
    else:
        ask = rng.choice(_FREE)
    question = f"{text}\n{ask}" if ask.endswith("?") and rng.random() < 0.25 else instruct(rng, ask, text)
    return single("topic", text, question, right)
