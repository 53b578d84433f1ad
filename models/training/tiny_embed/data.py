"""Pairs that belong together, drawn so that a batch holds near-duplicates which do not."""

import random

from ..common import words as w
from ..common.split import is_held_out
from ..tiny_chat.data.context import fact
from ..tiny_chat.data.sentences import sentence
from .frames import Frame, change, draw_frame, question, render

Pair = tuple[str, str, int]  # query, document, group: rows of one group are no negatives of each other

INTENTS = [line.split("|") for line in """reset password|i forgot my password|how do i change my password|can't log in because i don't remember my password|password recovery|my login does not work any more
refund|i want my money back|how do i get a refund|please return the money for my order|reimbursement for a purchase|can i be repaid
delivery time|when will my parcel arrive|how long does shipping take|where is my package|delivery date of the order|my order has not come yet
cancel subscription|how can i end my subscription|stop my membership|i no longer want to be a member|close my plan|terminate the contract
opening hours|when are you open|what time does the shop close|business hours|are you open on sunday|at what time do you start in the morning
contact support|how do i reach customer service|talk to a human|phone number of the help desk|email address of support|i need to speak with someone
weather|will it rain tomorrow|what is the forecast|is it going to be sunny|temperature for today|do i need an umbrella
book a table|reserve a table for two|i would like to make a restaurant reservation|can we have dinner at your place on friday|table booking|is there a free table tonight
payment methods|can i pay by credit card|do you accept cash|how to pay|which cards do you take|is bank transfer possible
translate text|how do you say this in german|turn this sentence into french|translation to spanish|what does this word mean in english|put this into another language
install software|how do i set up the program|installation steps|the app won't install|download and run the setup|put the application on my computer
recipe|how do i bake a cake|cooking instructions for soup|ingredients for bread|what do i need to make a pie|steps to cook pasta
pets|my dog is ill|food for cats|how do i train a puppy|the kitten will not eat|a good name for a hamster
travel|how do i get to the airport|train to berlin|flights to spain in summer|which bus goes to the centre|a cheap hotel near the beach
health|i have a headache|what helps against a cold|my back hurts|i need to see a doctor|medicine for fever
computers|my computer is slow|the screen stays black|how much memory does the server have|the program crashes|restart the machine
garden|how often do i water the roses|when do tomatoes grow|cut the grass|plants for a shady corner|my apple tree has no fruit
sport|who won the match|score of the football game|running shoes|how do i learn to swim|the team lost again
music|learn to play the piano|a song for children|guitar strings|the concert starts at eight|which instrument is easy
school|homework for monday|the exam was hard|how do i become a teacher|books for the maths lesson|when does the holiday begin""".split("\n")]


def lexical(rng: random.Random) -> tuple[str, str]:
    """Keywords out of a text of mostly invented words: unknown text then behaves like keyword search."""
    pool = [w.pseudo_word(rng) if rng.random() < 0.7 else rng.choice(w.NOUNS + w.ADJECTIVES) for _ in range(rng.randrange(4, 12))]
    chosen = [word + "s" if rng.random() < 0.15 else word for word in rng.sample(pool, rng.choice([1, 1, 2, 2, 3]))]
    return " ".join(chosen), " ".join(pool)


def trained_frame(rng: random.Random) -> Frame:
    """A frame of the training side of the split."""
    while True:
        frame = draw_frame(rng)
        if not is_held_out(frame.key, 10):
            return frame


def held_out_frame(rng: random.Random) -> Frame:
    """A frame that training never saw."""
    while True:
        frame = draw_frame(rng)
        if is_held_out(frame.key, 10):
            return frame


def _frame_pairs(rng: random.Random, count: int, group: int) -> list[Pair]:
    """Families of an event and its one-slot changes: each is a hard negative of the others."""
    pairs: list[Pair] = []
    while len(pairs) < count:
        frame = trained_frame(rng)
        asking = rng.random() < 0.45
        text, slots = question(rng, frame) if asking else ("", ())
        members = [frame, *(change(rng, frame, slots) if asking else change(rng, frame) for _ in range(rng.choice([1, 2, 3])))]
        for member in members:
            if is_held_out(member.key, 10):
                continue
            if asking and member is not frame:
                # a document that the question does not ask for, with a paraphrase as its own query
                pairs.append((render(rng, member), render(rng, member), group))
            else:
                pairs.append((text if asking else render(rng, member), render(rng, member), group))
            group += 1
    return pairs[:count]


def _other_pairs(rng: random.Random, count: int, group: int) -> list[Pair]:
    pairs: list[Pair] = []
    for index in range(count):
        kind = rng.random()
        if kind < 0.2:
            number = rng.randrange(len(INTENTS))
            a, b = rng.sample(INTENTS[number], 2)
            pairs.append((("please tell me: " if rng.random() < 0.15 else "") + a, b, -1 - number))
        elif kind < 0.32:
            statement, asked, _, _ = fact(rng)
            pairs.append((asked, statement, group + index))
        elif kind < 0.4:
            text = sentence(rng)
            parts = text.split(" ")
            rng.shuffle(parts)
            pairs.append((" ".join(parts[: max(1, len(parts) * 2 // 3)]).strip(".,"), text, group + index))
        else:
            a, b = lexical(rng)
            pairs.append((a, b, group + index))
    return pairs


def batch(rng: random.Random, size: int) -> list[Pair]:
    """Half events with near-duplicates, half everything else."""
    half = size // 2
    return _frame_pairs(rng, half, 0) + _other_pairs(rng, size - half, 10_000)


def passages(rng: random.Random, size: int) -> list[Pair]:
    """Queries against passages of several sentences: longer texts, later positions."""
    pairs: list[Pair] = []
    for group in range(size):
        frame = trained_frame(rng)
        query = question(rng, frame)[0] if rng.random() < 0.6 else render(rng, frame)
        lines = [render(rng, frame)] + [render(rng, trained_frame(rng)) if rng.random() < 0.7 else sentence(rng) for _ in range(rng.randrange(1, 9))]
        rng.shuffle(lines)
        pairs.append((query, " ".join(lines), group))
    return pairs
