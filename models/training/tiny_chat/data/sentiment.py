"""The mood of a sentence or a short review: positive, negative or neutral."""

import random

from ...common import words as w
from .context import UNJUDGED, city, person
from .example import Example, instruct, single
from .sentences import WIDE, some_word

GOOD = """good great wonderful excellent fantastic perfect amazing lovely beautiful superb brilliant delicious friendly helpful pleasant comfortable
nice delightful outstanding charming fun enjoyable impressive reliable fresh clean splendid marvellous awesome kind""".split()
BAD = """bad terrible awful horrible poor boring broken dirty rude disappointing useless ugly unpleasant dreadful disgusting noisy annoying nasty
slow stale worthless unfriendly uncomfortable unreliable overpriced faulty ridiculous sad miserable stupid""".split()
_GLAD = "happy glad pleased delighted satisfied thrilled".split()
_CROSS = "angry sad unhappy disappointed upset annoyed".split()
_LIKE = ["love", "like", "really like", "enjoy", "enjoyed", "loved", "liked", "recommend", "would recommend", "adore"]
_HATE = ["hate", "hated", "dislike", "regret buying", "do not like", "did not like", "cannot recommend", "would not recommend", "did not enjoy", "don't like"]
_VERY = ["", "", "", "very ", "really ", "so ", "absolutely ", "quite "]
_JUDGED = {*GOOD, *BAD, *_GLAD, *_CROSS, "best", "worst"}
_REVIEWED = """film book hotel room food service phone meal restaurant concert show game song staff coffee waiter trip product app camera laptop story
music play view pizza soup party weather garden shop train flight bed breakfast dinner teacher lesson car museum design quality price sound screen""".split()
_GOOD_TAILS = """I will come back.|I will buy it again.|Five stars!|Thank you so much!|It made my day.|What a great day!|It works perfectly.|Well done!
Everyone was happy.|Best choice ever.|I am very happy with it.|I could not be happier.|We had a great time.|It was worth every cent.""".replace("\n", "|").split("|")
_BAD_TAILS = """I will never come back.|Never again.|I want my money back.|It broke after one day.|What a waste of time.|What a waste of money.|It does not work.
I am very unhappy with it.|We left early.|One star.|It was a mistake to buy it.|Nobody helped us.|It made me angry.|I was bored the whole time.""".replace("\n", "|").split("|")
ASKS = """What is the sentiment of this sentence?|What is the sentiment of this text?|Is this positive, negative or neutral?|Classify the sentiment as positive, negative or neutral
Sentiment|Classify the sentiment|What is the mood of this text?|Is this review positive, negative or neutral?|Is the following text positive, negative or neutral?
Decide whether this is positive, negative or neutral|Give the sentiment (positive, negative or neutral)|Label the sentiment of this review""".replace("\n", "|").split("|")
_TWO_ASKS = ["Is this positive or negative?", "Is this review positive or negative?", "Classify as positive or negative", "Was the customer happy? Answer positive or negative."]


def _thing(rng: random.Random) -> str:
    """What is judged: usual things, any noun, or one in three an invented word."""
    kind = rng.random()
    if kind < 0.33:
        return w.pseudo_word(rng)
    return rng.choice(_REVIEWED) if kind < 0.75 else rng.choice(w.NOUNS + WIDE)


def _opinion(rng: random.Random, positive: bool) -> str:
    """One sentence with a judgement, now and then by denying its opposite."""
    thing, adverb = _thing(rng), rng.choice(_VERY)
    mine, others = (GOOD, BAD) if positive else (BAD, GOOD)
    adjective, copula = rng.choice(mine), rng.choice(["is", "was", "was"])
    form = rng.randrange(12)
    if form == 0:
        return f"I {rng.choice(_LIKE if positive else _HATE)} {rng.choice(['it', f'this {thing}', f'the {thing}', f'the {thing}', f'my {thing}'])}{rng.choice('..!')}"
    if form == 1:
        return f"{person(rng)} {rng.choice(['loves', 'enjoyed', 'liked'] if positive else ['hates', 'hated', 'disliked'])} the {thing}."
    if form == 2:
        return f"I am {adverb}{rng.choice(_GLAD if positive else _CROSS)} {rng.choice(['with', 'about'])} the {thing}."
    if form == 3:
        return f"The {thing} {copula} not {rng.choice(['', 'at all ', 'very '] if not positive else ['', 'at all '])}{rng.choice(others)}."
    if form == 4:
        return f"{rng.choice(['What', 'Such'])} {w.article(adjective)} {thing}!"
    if form == 5:
        return f"The {thing} in {city(rng)} {copula} {adverb}{adjective}."
    if form == 6:
        return f"This is {'the best' if positive else 'the worst'} {thing} {rng.choice(['ever', 'I know', 'in town', 'of the year'])}."
    if form == 7:
        return f"The {thing} {copula} {adjective} and {rng.choice(mine)}."
    if form == 8:
        return f"{rng.choice(['We had', 'It was', 'That was', 'I had'])} {w.article(adjective)} {thing}."
    if form == 9:
        return f"{rng.choice(['It', 'It', 'This', 'That', 'Everything'])} {copula} {adverb}{adjective}{rng.choice('..!')}"
    return f"{rng.choice(['The', 'The', 'My', 'This'])} {thing} {copula} {adverb}{adjective}{rng.choice(['.', '.', '!'])}"


def _statement(rng: random.Random) -> str:
    """A sentence that judges nothing: its free words are none of the judgements."""
    while _JUDGED.intersection((text := _plain(rng)).rstrip(".").split(" ")):
        pass
    return text


def _plain(rng: random.Random) -> str:
    form = rng.randrange(7)
    if form == 0:
        return f"{person(rng)} {rng.choice(['bought', 'sold', 'sees', 'has', 'moved', 'carried', 'opened', 'painted'])} the {_thing(rng)} {rng.choice(w.PLACES + w.TIMES)}."
    if form == 1:
        return f"The {_thing(rng)} is {rng.choice(w.PLACES)}."
    if form == 2:
        return f"There are {rng.choice(w.NUMBERS)} {w.plural(some_word(rng))} {rng.choice(w.PLACES)}."
    if form == 3:
        return f"The {_thing(rng)} {rng.choice(['starts at', 'ends at', 'arrives at', 'closes at', 'has number'])} {rng.randrange(1, 13)}."
    if form == 4:
        return f"I {rng.choice(['bought', 'ordered', 'saw', 'used', 'received'])} {rng.choice(['the', 'this', 'a second'])} {_thing(rng)} {rng.choice(w.TIMES)}."
    return rng.choice(UNJUDGED)(rng)[0]


def review(rng: random.Random, mood: str) -> str:
    """One or two sentences of one mood; a plain statement may stand beside the judgement."""
    if mood == "neutral":
        return " ".join(_statement(rng) for _ in range(rng.choice([1, 1, 1, 2])))
    positive = mood == "positive"
    parts = [_opinion(rng, positive)]
    kind = rng.random()
    if kind < 0.25:
        parts.append(rng.choice(_GOOD_TAILS if positive else _BAD_TAILS))
    elif kind < 0.4:
        parts.append(_opinion(rng, positive))
    elif kind < 0.55:
        parts.insert(0, _statement(rng))
    elif kind < 0.6:
        parts = [rng.choice(_GOOD_TAILS if positive else _BAD_TAILS)]
    return " ".join(parts)


def sentiment(rng: random.Random) -> Example:
    """Mostly the choice of three moods, now and then of two."""
    two = rng.random() < 0.2
    mood = rng.choice(["positive", "negative"] if two else ["positive", "negative", "neutral"])
    text = review(rng, mood)
    ask = rng.choice(_TWO_ASKS if two else ASKS)
    question = f"{text}\n{ask}" if ask.endswith("?") and rng.random() < 0.25 else instruct(rng, ask, text)
    return single("sentiment", text, question, mood)
