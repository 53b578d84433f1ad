"""Questions about views with their answers, and captions."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from ..tiny_sd.pictures import SHAPES, Thing
from .scenes import COLOURS, DIGITS, View
from .wordings import wordings

SIDES = ("left of", "right of", "above", "below")
OUTERMOST = {"leftmost": 0, "rightmost": 0, "topmost": 1, "lowest": 1}
SYNONYMS = {"circle": ("disc", "dot"), "square": ("box",)}
NO_IMAGE = "There is no image. Send one with shapes or a digit."
OUTSIDE = "I can only tell shapes, colours, counts, places and digits."
GREETING = "Hello! Send me an image of shapes or of a digit."
GREETINGS = ("Hello", "Hi", "Hello!", "Hi there", "Hey", "Good morning", "How are you?", "Who are you?", "What can you do?", "Help")
FOREIGN = ("Who painted this?", "Is it raining?", "What is the capital of France?", "Write a poem about it.", "Who is in the picture?", "What does the text say?", "How old is she?", "Why?",
           "What is two plus two?", "Tell me a joke.", "Which animal is this?", "Translate this to French.", "Where was this photo taken?", "What will happen next?", "Is this art good?")
CLEAR = 0.16  # distance along an axis from which on one thing is beside the other
UNCLEAR = 0.08  # up to which it is not; questions whose answer lies between are not asked
MORE = 1.4  # times as far along one axis as along the other, where one word says where a thing is


@dataclass(frozen=True)
class Question:
    """One turn of a chat about an image."""

    kind: str
    text: str
    answer: str


def article(words: str) -> str:
    """With `a` or `an`; of the digits, 8 alone is spoken with a vowel first."""
    return f"{'an' if words[0] in 'aeio8' else 'a'} {words}"


def name(thing: Thing) -> str:
    """Colour and shape."""
    return f"{thing.colour} {thing.shape}"


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _ask(kind: str, rng: random.Random, unseen: bool, answer: str, **fields: str) -> Question:
    fields |= {key.upper(): _first(text) for key, text in fields.items() if len(key) == 1}
    return Question(kind, _first(rng.choice(wordings(kind, unseen)).format(**fields)), answer)


def _told(thing: Thing, view: View, rng: random.Random, without: str = "") -> str | None:
    """Words that only this thing has; `without` is what they must not tell."""
    alike = [t for t in view.things if t is not thing]
    kind = rng.choice(SYNONYMS[thing.shape]) if thing.shape in SYNONYMS and rng.random() < 0.1 else thing.shape
    found = []
    if without != "kind" and all(t.shape != thing.shape for t in alike):
        found.append(f"the {kind}")
    if without != "colour" and all(t.colour != thing.colour for t in alike):
        found.append(f"the {thing.colour} {rng.choice(('thing', 'shape', 'object', 'one'))}")
    if not without and all(name(t) != name(thing) for t in alike):
        found += [f"the {thing.colour} {kind}"] * 2
    if not alike:
        found += ["the shape", "it", "the thing", "this shape"]
    return rng.choice(found) if found else None


def _colour(view: View, rng: random.Random, unseen: bool) -> Question | None:
    if view.digit:
        return _ask("colour", rng, unseen, _first(view.things[0].colour), a=rng.choice(("the digit", "the number", "it", f"the {view.digit}")))
    thing = rng.choice(view.things)
    told = _told(thing, view, rng, "colour")
    return told and _ask("colour", rng, unseen, _first(thing.colour), a=told)


def _kind(view: View, rng: random.Random, unseen: bool) -> Question | None:
    thing = rng.choice(view.things)
    told = _told(thing, view, rng, "kind")
    return told and _ask("kind", rng, unseen, _first(thing.shape), a=told)


def _ground(view: View, rng: random.Random, unseen: bool) -> Question:
    return _ask("ground", rng, unseen, _first(view.background))


def _count(view: View, rng: random.Random, unseen: bool) -> Question:
    return _ask("count", rng, unseen, str(len(view.things)))


def _count_some(view: View, rng: random.Random, unseen: bool) -> Question:
    thing = rng.choice(view.things)
    colour, shape = (thing.colour, thing.shape) if rng.random() < 0.75 else (rng.choice(list(COLOURS)), rng.choice(SHAPES))
    plural = rng.choice(SYNONYMS[shape]) if shape in SYNONYMS and rng.random() < 0.1 else shape
    plural += "es" if plural.endswith("x") else "s"
    some, fits = rng.choice([
        (plural, lambda t: t.shape == shape), (f"{colour} {rng.choice(('shapes', 'things', 'objects'))}", lambda t: t.colour == colour),
        (f"{colour} {plural}", lambda t: (t.colour, t.shape) == (colour, shape))])
    return _ask("countSome", rng, unseen, str(sum(map(fits, view.things))), some=some)


def _exists(view: View, rng: random.Random, unseen: bool) -> Question:
    thing, other = rng.choice(view.things), rng.choice(view.things)
    colour = thing.colour if rng.random() < 0.7 else rng.choice(list(COLOURS))
    shape = rng.choice((thing, other)).shape if rng.random() < 0.7 else rng.choice(SHAPES)
    words, fits = rng.choice([
        (f"{colour} {shape}", lambda t: (t.colour, t.shape) == (colour, shape)), (shape, lambda t: t.shape == shape), (f"{colour} shape", lambda t: t.colour == colour)])
    return _ask("exists", rng, unseen, "Yes" if any(map(fits, view.things)) else "No", a=article(words))


def beside(a: Thing, b: Thing) -> list[str]:
    """Where `a` clearly is as seen from `b`."""
    dx, dy = a.x - b.x, a.y - b.y
    found = []
    if abs(dx) > CLEAR:
        found.append("left of" if dx < 0 else "right of")
    if abs(dy) > CLEAR:
        found.append("above" if dy < 0 else "below")
    return found


def _two(view: View, rng: random.Random) -> tuple[Thing, Thing, str, str, list[str]] | None:
    if len(view.things) < 2:
        return None
    a, b = rng.sample(view.things, 2)
    told, sides = (_told(a, view, rng), _told(b, view, rng)), beside(a, b)
    return (a, b, *told, sides) if all(told) and sides else None


def _spoken(side: str, rng: random.Random) -> str:
    return f"to the {side}" if side in ("left of", "right of") and rng.random() < 0.4 else side


def _relation(view: View, rng: random.Random, unseen: bool) -> Question | None:
    if not (found := _two(view, rng)):
        return None
    *_, a, b, sides = found
    opposite = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
    side = rng.choice(sides)
    side, answer = (side, "Yes") if rng.random() < 0.5 else (opposite[side], "No")
    return _ask("relation", rng, unseen, answer, a=a, b=b, side=_spoken(side, rng))


def _where(view: View, rng: random.Random, unseen: bool) -> Question | None:
    if not (found := _two(view, rng)):
        return None
    a, b, *told, _ = found
    side = mainly(a, b)
    return side and _ask("where", rng, unseen, _first(side.removesuffix(" of")), a=told[0], b=told[1])


def mainly(a: Thing, b: Thing) -> str | None:
    """The one side of `b` on which `a` is, if the distance along the other axis is clearly smaller."""
    wide, high = abs(a.x - b.x), abs(a.y - b.y)
    if max(wide, high) < MORE * min(wide, high):
        return None
    return ("left of" if a.x < b.x else "right of") if wide > high else ("above" if a.y < b.y else "below")


def _distance(side: str, a: Thing, b: Thing) -> float:
    """How far `a` is on this side of `b`; negative on the other side."""
    return {"left of": b.x - a.x, "right of": a.x - b.x, "above": b.y - a.y, "below": a.y - b.y}[side]


def _beside(view: View, rng: random.Random, unseen: bool) -> Question | None:
    if not (found := _two(view, rng)):
        return None
    _, b, _, told, _ = found
    side = rng.choice(SIDES)
    far = sorted(((_distance(side, t, b), t) for t in view.things if t is not b), key=lambda one: -one[0])
    if far[0][0] < CLEAR or (len(far) > 1 and far[1][0] > UNCLEAR):
        return None
    return _ask("beside", rng, unseen, _first(article(name(far[0][1]))), b=told, side=_spoken(side, rng))


def _third(value: float, names: tuple[str, str, str]) -> str | None:
    if value < 0.37:
        return names[0]
    if value > 0.63:
        return names[2]
    return names[1] if 0.44 < value < 0.56 else None


def _place(view: View, rng: random.Random, unseen: bool) -> Question | None:
    thing = rng.choice(view.things)
    row, column = _third(thing.y, ("top", "", "bottom")), _third(thing.x, ("left", "", "right"))
    told = rng.choice(("the digit", "the number")) if view.digit else _told(thing, view, rng)
    if row is None or column is None or told is None:
        return None
    return _ask("place", rng, unseen, _first(" ".join(filter(None, (row, column))) or "centre"), a=told)


def _outermost(view: View, rng: random.Random, unseen: bool) -> Question | None:
    word, axis = rng.choice(list(OUTERMOST.items()))
    order = sorted(view.things, key=lambda t: (t.x, t.y)[axis], reverse=word in ("rightmost", "lowest"))
    if len(order) < 2 or abs((order[0].x, order[0].y)[axis] - (order[1].x, order[1].y)[axis]) < 0.1:
        return None
    return _ask("outermost", rng, unseen, _first(article(name(order[0]))), outermost=word)


def _digit(view: View, rng: random.Random, unseen: bool) -> Question:
    return _ask("digit", rng, unseen, str(view.digit))


def _is_digit(view: View, rng: random.Random, unseen: bool) -> Question:
    asked = view.digit if rng.random() < 0.5 else rng.choice(DIGITS)
    return _ask("isDigit", rng, unseen, "Yes" if asked == view.digit else "No", digit=str(asked))


def _any_digit(view: View, rng: random.Random, unseen: bool) -> Question:
    return _ask("anyDigit", rng, unseen, "Yes" if view.digit else "No")


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def described(view: View) -> str:
    """The things from left to right; of two, where the first one is."""
    if not view.things:
        return "nothing"
    if len(view.things) == 2:
        a, b = view.things
        wide = abs(a.x - b.x) >= abs(a.y - b.y)
        a, b = sorted((a, b), key=lambda t: t.x if wide else t.y)
        return f"{article(name(a))} {'left of' if wide else 'above'} {article(name(b))}"
    return _listed([article(name(t)) for t in sorted(view.things, key=lambda t: t.x)])


def _what(view: View, rng: random.Random, unseen: bool) -> Question:
    return _ask("what", rng, unseen, _first(described(view)))


def _caption(view: View, rng: random.Random, unseen: bool) -> Question:
    return _ask("caption", rng, unseen, f"{_first(described(view))} on {article(view.background)} background.")


Maker = Callable[[View, random.Random, bool], Question | None]
OF_ALL: dict[str, tuple[Maker, int]] = {"ground": (_ground, 2), "anyDigit": (_any_digit, 1), "what": (_what, 1), "caption": (_caption, 3)}
OF_SHAPES: dict[str, tuple[Maker, int]] = {
    **OF_ALL, "colour": (_colour, 5), "kind": (_kind, 2), "count": (_count, 2), "countSome": (_count_some, 4), "exists": (_exists, 3), "relation": (_relation, 14), "where": (_where, 14),
    "beside": (_beside, 24), "place": (_place, 8), "outermost": (_outermost, 6)}
OF_DIGITS: dict[str, tuple[Maker, int]] = {**OF_ALL, "digit": (_digit, 6), "colour": (_colour, 3), "isDigit": (_is_digit, 4), "place": (_place, 3)}
OF_NOTHING: dict[str, tuple[Maker, int]] = {**OF_ALL, "count": (_count, 2)}


def makers(view: View) -> dict[str, tuple[Maker, int]]:
    """The kinds of questions that a view allows, with their weights."""
    return OF_DIGITS if view.digit else OF_SHAPES if view.things else OF_NOTHING


def question(view: View, rng: random.Random, unseen: bool = False, kind: str | None = None) -> Question | None:
    """One of a kind, or of any; None where the view leaves its answer open."""
    table = makers(view)
    chosen = kind or rng.choices(list(table), [weight for _, weight in table.values()])[0]
    return table[chosen][0](view, rng, unseen) if chosen in table else None


def as_typed(text: str, rng: random.Random) -> str:
    """The same question as hands type it."""
    if rng.random() < 0.5:
        text = text.replace("olour", "olor")
    if rng.random() < 0.06:
        text += rng.choice((" Answer in one word.", " Answer briefly.", " Use one word."))
    if rng.random() < 0.2:
        text = text.rstrip("?.!")
    if rng.random() < 0.25:
        text = text.lower()
    return text


def questions(view: View, rng: random.Random, count: int) -> list[Question]:
    """Different questions of a training row."""
    found: dict[str, Question] = {}
    while len(found) < count:
        made = question(view, rng)
        if made:
            found[made.text] = made
        elif not view.things and len(found) > 2:
            break
    made = [Question(q.kind, as_typed(q.text, rng), q.answer) for q in found.values()]
    if rng.random() < 0.1:
        made.append(Question("outside", as_typed(rng.choice(FOREIGN), rng), OUTSIDE))
    return made
