"""Short stories for `/completions` and the passage form of `/search`."""

import random

from ...common import words as w
from .context import fact
from .example import Example
from .sentences import known_sentence, sentence


def story_text(rng: random.Random) -> str:
    """One of three plots with drawn people, things and places."""
    hero, friend = rng.sample(w.NAMES, 2)
    animal, thing, place = rng.choice(w.ANIMALS), rng.choice(w.OBJECTS), rng.choice(w.PLACES)
    adjective, colour = rng.choice(w.ADJECTIVES), rng.choice(w.COLOURS)
    plot = rng.randrange(3)
    if plot == 0:
        return (
            f"Once upon a time there was {w.article(adjective)} {animal} named {hero}. {hero} lived {place}. "
            f"One day {hero} met {friend}. {friend} had {w.article(colour)} {thing}. \"May I see the {thing}?\" asked {hero}. "
            f"\"Yes, you may,\" said {friend}. They played together until it was dark. Then {hero} went home and was very happy."
        )
    if plot == 1:
        return (
            f"{hero} lost the {thing} {place}. {hero} was sad. {friend} wanted to help. They looked for the {thing} all day. "
            f"At last {friend} found it under {w.article(adjective)} {rng.choice(w.OBJECTS)}. \"Thank you, {friend}!\" said {hero}. "
            f"They were good friends from that day on."
        )
    food = rng.choice(w.FOODS)
    return (
        f"It was {w.article(adjective)} day. {hero} went out to buy {w.article(food)}. {place.capitalize()} {hero} saw {w.article(colour)} {animal}. "
        f"The {animal} was hungry. {hero} gave the {food} to the {animal}. {friend} saw it and smiled. \"You are kind,\" said {friend}. "
        f"After that the {animal} came to see {hero} every day."
    )


def story(rng: random.Random) -> Example:
    """Plain text, loss on every token."""
    text = story_text(rng)
    return Example("story", f"story:{text}", text=text)


def related(rng: random.Random) -> Example:
    """A passage and a query about it, as the search endpoint scores them."""
    if rng.random() < 0.5:
        statement, question, _, _ = fact(rng)
        passage, query = statement, question
    else:
        passage = sentence(rng)
        parts = [p.strip(".,") for p in passage.split(" ") if len(p) > 3] or passage.split(" ")
        query = " ".join(rng.sample(parts, min(len(parts), rng.choice([1, 1, 2, 3]))))
    if rng.random() < 0.3:
        passage = f"{known_sentence(rng)} {passage}"
    prompt = f"{passage}\n\n---\n\nThe above passage is related to:"
    return Example("related", f"related:{passage}", text=f"{prompt} {query}", prompt_chars=len(prompt))
