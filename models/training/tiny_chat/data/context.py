"""Questions about a given text, JSON out of a given text: nothing here can be known beforehand."""

import json
import random

from ...common import words as w
from .example import Example, single, user, assistant, system
from .sentences import some_word

ABSENT = "The text does not say."
JOBS = "baker farmer pilot nurse painter writer singer lawyer plumber sailor driver cook dancer student".split()


def person(rng: random.Random) -> str:
    """A name, one in four invented."""
    return w.pseudo_word(rng, 2).capitalize() if rng.random() < 0.25 else rng.choice(w.NAMES)


def city(rng: random.Random) -> str:
    """A city, one in four invented."""
    return w.pseudo_word(rng, 2).capitalize() if rng.random() < 0.25 else rng.choice(w.CITIES)


def _has(rng: random.Random) -> tuple[str, str, str, str]:
    who, thing = person(rng), f"{rng.choice(w.COLOURS + w.ADJECTIVES)} {some_word(rng)}"
    return f"{who} has {w.article(thing)}.", f"What does {who} have?", f"{who} has {w.article(thing)}.", who


def _owner(rng: random.Random) -> tuple[str, str, str, str]:
    who, thing = person(rng), some_word(rng)
    return f"{who} owns the {thing}.", f"Who owns the {thing}?", f"{who} owns the {thing}.", thing


def _lives(rng: random.Random) -> tuple[str, str, str, str]:
    who, where = person(rng), city(rng)
    return f"{who} lives in {where}.", f"Where does {who} live?", f"{who} lives in {where}.", who


def _age(rng: random.Random) -> tuple[str, str, str, str]:
    who, age = person(rng), rng.randrange(2, 99)
    return f"{who} is {age} years old.", f"How old is {who}?", f"{who} is {age} years old.", who


def _job(rng: random.Random) -> tuple[str, str, str, str]:
    who, job = person(rng), rng.choice(JOBS) if rng.random() < 0.7 else w.pseudo_word(rng)
    return f"{who} works as {w.article(job)}.", f"What is the job of {who}?", f"{who} works as {w.article(job)}.", who


def _place(rng: random.Random) -> tuple[str, str, str, str]:
    thing, place = some_word(rng), rng.choice(w.PLACES)
    return f"The {thing} is {place}.", f"Where is the {thing}?", f"The {thing} is {place}.", thing


def _code(rng: random.Random) -> tuple[str, str, str, str]:
    thing, code = some_word(rng), rng.randrange(10, 9999)
    what = rng.choice(["code", "number"])
    return f"The {what} of the {thing} is {code}.", f"What is the {what} of the {thing}?", f"The {what} of the {thing} is {code}.", thing


def _price(rng: random.Random) -> tuple[str, str, str, str]:
    thing, price = some_word(rng), rng.randrange(1, 300)
    unit = rng.choice(["euros", "dollars"])
    return f"The {thing} costs {price} {unit}.", f"How much does the {thing} cost?", f"The {thing} costs {price} {unit}.", thing


def _likes(rng: random.Random) -> tuple[str, str, str, str]:
    who, what = person(rng), some_word(rng)
    return f"{who} likes {w.plural(what)}.", f"What does {who} like?", f"{who} likes {w.plural(what)}.", who


def _opens(rng: random.Random) -> tuple[str, str, str, str]:
    thing, hour = rng.choice(["shop", "school", "museum", "library", "bank", "office", "market", some_word(rng)]), rng.randrange(1, 13)
    return f"The {thing} opens at {hour}.", f"When does the {thing} open?", f"The {thing} opens at {hour}.", thing


def _colour(rng: random.Random) -> tuple[str, str, str, str]:
    thing, colour = some_word(rng), rng.choice(w.COLOURS)
    return f"The {thing} is {colour}.", f"What colour is the {thing}?", f"The {thing} is {colour}.", thing


FACTS = [_has, _owner, _lives, _age, _job, _place, _code, _price, _likes, _opens, _colour]
UNJUDGED = [maker for maker in FACTS if maker not in (_has, _likes)]


def fact(rng: random.Random) -> tuple[str, str, str, str]:
    """(statement, question, answer, subject)."""
    return rng.choice(FACTS)(rng)


def _passage(rng: random.Random, count: int) -> list[tuple[str, str, str, str]]:
    """Facts about different subjects, half the time all of one kind so that the kind gives nothing away."""
    one = rng.choice(FACTS) if rng.random() < 0.5 else None
    chosen: list[tuple[str, str, str, str]] = []
    while len(chosen) < count:
        row = (one or rng.choice(FACTS))(rng)
        if all(row[3] != other[3] and row[1] != other[1] for other in chosen):
            chosen.append(row)
    return chosen


def _question(rng: random.Random, missing: float) -> Example:
    """Two to seven facts and one question, whose answer is taken out of the text with this probability."""
    rows = _passage(rng, rng.choice([1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7]))
    asked = rng.choice(rows)
    shown = [row[0] for row in rows]
    answer = asked[2]
    if rng.random() < missing and len(rows) > 1:
        shown.remove(asked[0])
        answer = ABSENT
    text = (" " if rng.random() < 0.75 else "\n").join(shown)
    key, form = f"context:{text}", rng.randrange(6)
    if form == 0:
        turns = [system(f"Answer with the help of this text:\n{text}"), user(asked[1])]
    else:
        wordings = [f"{text}\n{asked[1]}", f"Context:\n{text}\n\nQuestion: {asked[1]}", f"{asked[1]}\n\n{text}",
                    f"Text: {text}\nQuestion: {asked[1]}", f"Read the text and answer.\n{text}\n\n{asked[1]}"]
        turns = [user(wordings[form - 1])]
    return Example("context", key, [*turns, assistant(answer)])


def context(rng: random.Random) -> Example:
    """A question about a given text; one in ten is not answered by it."""
    return _question(rng, 0.1)


def absent(rng: random.Random) -> Example:
    """The same with a missing answer in three of four: to see that something is not there is learned last."""
    return _question(rng, 0.75)


def json_from_text(rng: random.Random) -> Example:
    """Name, age and city (or another triple) as one JSON object with the keys in the asked order."""
    who, age, where = person(rng), rng.randrange(3, 95), city(rng)
    job = rng.choice(JOBS)
    values = {"name": who, "age": age, "city": where, "job": job}
    keys = rng.sample(list(values), rng.choice([2, 3, 3]))
    if rng.random() < 0.5:
        keys = ["name", "age", "city"]
    sayings = [f"{who} is {age} years old, works as {w.article(job)} and lives in {where}.", f"In {where} lives {who}, {w.article(job)}, who is {age}.",
               f"{who}, aged {age}, is {w.article(job)} and lives in {where}.", f"name: {who}\nage: {age}\ncity: {where}\njob: {job}"]
    if keys == ["name", "age", "city"]:
        sayings += [f"{who} is {age} years old and lives in {where}.", f"{who}, aged {age}, lives in {where}.",
                    f"In {where} there lives {who}, who is {age}.", f"My name is {who}. I am {age} and I live in {where}."] * 2
    text, listed = rng.choice(sayings), ", ".join(keys[:-1]) + " and " + keys[-1]
    ask = rng.choice(["Extract {} as JSON:\n", "Give {} as JSON:\n", "Return a JSON object with {}:\n", "Answer in JSON with the keys {}.\n"])
    body = json.dumps({key: values[key] for key in keys}, ensure_ascii=False)
    return single("json", f"{who}/{age}/{where}", ask.format(listed) + text, body)


def json_from_list(rng: random.Random) -> Example:
    """A shopping list as an array, or pairs as an object."""
    items = list(dict.fromkeys(some_word(rng) for _ in range(rng.randrange(2, 5))))
    numbers = [rng.randrange(1, 60) for _ in items]
    if rng.random() < 0.5:
        ask = rng.choice(["Write as a JSON array: ", "Turn into a JSON list: ", "Make a JSON array of: "])
        return single("json", ",".join(items), ask + ", ".join(items), json.dumps(items))
    text = ", ".join(f"{n} {w.plural(item)}" for n, item in zip(numbers, items, strict=True))
    ask = rng.choice(["Write as a JSON object: ", "Turn the list into a JSON object: ", "Give the counts as JSON: "])
    return single("json", text, ask + text, json.dumps({w.plural(i): n for i, n in zip(items, numbers, strict=True)}))
