"""Sums with their working: units first, then tens with the carry, then the result."""

import random

from ...common import words as w
from .example import Example, single

ASK = ["What is {}?", "Calculate {}.", "{} =", "How much is {}?", "{}", "Compute {}.", "{} = ?"]


def working_add(a: int, b: int) -> str:
    """`7 + 5 = 12, 1 + 2 + 1 = 4. So 17 + 25 = 42.`"""
    if a < 10 and b < 10:
        return f"{a} + {b} = {a + b}."
    carry = (a % 10 + b % 10) // 10
    tens = f"{a // 10} + {b // 10}" + (" + 1" if carry else "")
    return f"{a % 10} + {b % 10} = {a % 10 + b % 10}, {tens} = {a // 10 + b // 10 + carry}. So {a} + {b} = {a + b}."


def working_subtract(a: int, b: int) -> str:
    """`12 - 7 = 5, 4 - 1 - 1 = 2. So 42 - 17 = 25.`"""
    if a < 10:
        return f"{a} - {b} = {a - b}."
    borrow = a % 10 < b % 10
    units = a % 10 + (10 if borrow else 0)
    tens = f"{a // 10} - {b // 10}" + (" - 1" if borrow else "")
    return f"{units} - {b % 10} = {units - b % 10}, {tens} = {a // 10 - b // 10 - borrow}. So {a} - {b} = {a - b}."


def _ask(rng: random.Random, sum_text: str) -> str:
    shown = sum_text if rng.random() < 0.85 else sum_text.replace(" ", "")
    return rng.choice(ASK).format(shown)


def addition(rng: random.Random) -> Example:
    """Two numbers below 100."""
    a, b = (rng.randrange(100) if rng.random() < 0.85 else rng.randrange(10) for _ in range(2))
    key = "{}+{}".format(*sorted((a, b)))
    return single("add", key, _ask(rng, f"{a} + {b}"), working_add(a, b))


def subtraction(rng: random.Random) -> Example:
    """Two numbers below 100, the larger first."""
    b, a = sorted((rng.randrange(100), rng.randrange(100)))
    return single("subtract", f"{a}-{b}", _ask(rng, f"{a} - {b}"), working_subtract(a, b))


def multiplication(rng: random.Random) -> Example:
    """The table up to twelve, a closed set: the wording is held out with the pair."""
    a, b = rng.randrange(13), rng.randrange(13)
    ask, sign = rng.choice(ASK), rng.choice(["*", "*", "x"])
    return single("multiply", f"{a}*{b}/{ask}", ask.format(f"{a} {sign} {b}"), f"{a} * {b} = {a * b}.")


def word_problem(rng: random.Random) -> Example:
    """More or fewer of something."""
    a, b = rng.randrange(2, 40), rng.randrange(2, 20)
    name, item = rng.choice(w.NAMES), w.plural(rng.choice(w.THINGS))
    if rng.random() < 0.5:
        verb, past = rng.choice(["buys", "finds", "gets"]), "has"
        text = f"{name} {past} {a} {item} and {verb} {b} more. How many {item} does {name} have?"
        return single("word", f"{name}+{a}+{b}", text, f"{working_add(a, b)} {name} has {a + b} {item}.")
    a = a + b
    verb = rng.choice(["sells", "loses", "gives away"])
    text = f"{name} has {a} {item} and {verb} {b}. How many {item} are left?"
    return single("word", f"{name}-{a}-{b}", text, f"{working_subtract(a, b)} {name} has {a - b} {item} left.")
