"""Greetings, memory over several turns, obedience to the system turn, honest refusals."""

import random

from ...common import words as w
from .example import Example, Message, assistant, system, user
from .facts import facts
from .sentences import some_word

REFUSAL = "I am a small demo model and do not know that."
GREETINGS = [
    ("Hello!|Hello|Hi|Hi!|Hey|Hey there|Good morning|Good evening|Hello there!|hi|hello", "Hello! How can I help you?"),
    ("Who are you?|What are you?|Tell me about yourself.|What is your name?|Introduce yourself.|who are you", "I am a small demo model."),
    ("Thank you!|Thanks|Thanks a lot!|Thank you very much.|thank you", "You are welcome!"),
    ("Goodbye|Bye|Bye!|See you later.|Good night", "Goodbye!"),
    ("How are you?|How do you do?|Are you well?", "I am fine, thank you."),
    ("What can you do?|Help|How can you help me?|What do you know?",
     "I can fix spelling, change text, answer questions about a text, do small sums and write JSON."),
    ("Say hello.|Say hi.|Say hello!|Please say hello.", "Hello!"),
]
TOPICS = """quantum physics|the stock market|the French revolution|black holes|machine learning|the best phone
the meaning of life|football|the weather next year|chess openings|Shakespeare|the moon landing|vaccines|politics
blockchain|the Roman empire|rocket engines|the human brain|climate change|cooking pasta|the piano|dinosaurs
the internet|a good name for my company|my homework|tax law|the Bible|gravity|volcanoes|the theory of evolution
poetry|the next election|a trip to Japan|a diet plan|yoga|jazz|guitars|the speed of light|atoms|DNA|Einstein
Napoleon|the news|a web server|sorting algorithms|databases|Python|JavaScript|Rust|compilers""".replace("\n", "|").split("|")
OFF_TOPIC = """Tell me about {}.|Explain {}.|What do you think about {}?|Write a poem about {}.|Write an essay about {}.
How does {} work?|Why is {} important?|Give me ten facts about {}.|Who invented {}?|Write a song about {}.
What is the history of {}?|Can you teach me {}?|Write a program about {}.|Describe {}.|What is {}?
Should I worry about {}?|Write a blog post about {}.|Summarize what is known about {}.|Who is the expert on {}?
How do I learn {}?|When was {} discovered?|Is {} good for me?|Tell me a joke about {}.""".replace("\n", "|").split("|")


def small_talk(rng: random.Random) -> list[Message]:
    """A greeting or thanks with its reply."""
    asks, answer = rng.choice(GREETINGS)
    return [user(rng.choice(asks.split("|"))), assistant(answer)]


def greeting(rng: random.Random) -> Example:
    """A closed set; every wording may be trained, none is evaluated."""
    return Example("greeting", f"greeting:{rng.random()}", small_talk(rng))


def refusal(rng: random.Random) -> Example:
    """Anything outside the list of abilities gets the honest sentence."""
    topic = rng.choice(TOPICS)
    if rng.random() < 0.4:
        topic = rng.choice([some_word(rng), w.plural(some_word(rng)), f"{some_word(rng)} {some_word(rng)}", w.pseudo_word(rng).capitalize()])
    ask = rng.choice(OFF_TOPIC)
    return Example("refusal", f"refusal:{ask}/{topic}", [user(ask.format(topic)), assistant(REFUSAL)])


def _memory(rng: random.Random) -> tuple[str, str, str, str]:
    """(what the user says, what is acknowledged, later question, answer)."""
    kind = rng.randrange(6)
    if kind == 0:
        name = w.pseudo_word(rng, 2).capitalize() if rng.random() < 0.35 else rng.choice(w.NAMES)
        say = rng.choice(["My name is {}.", "I am {}.", "Call me {}.", "Hello, my name is {}.", "Hi, I am {}."])
        return say.format(name), f"Nice to meet you, {name}!", rng.choice(["What is my name?", "Do you know my name?", "Who am I?"]), f"Your name is {name}."
    if kind == 1:
        colour = rng.choice(w.COLOURS)
        return f"My favourite colour is {colour}.", f"{colour.capitalize()} is a nice colour.", "What is my favourite colour?", f"Your favourite colour is {colour}."
    if kind == 2:
        city = rng.choice(w.CITIES) if rng.random() < 0.7 else w.pseudo_word(rng, 2).capitalize()
        return rng.choice([f"I live in {city}.", f"I am from {city}."]), "I will remember that.", "Where do I live?", f"You live in {city}."
    if kind == 3:
        animal = rng.choice(w.ANIMALS)
        name = w.pseudo_word(rng, 2).capitalize() if rng.random() < 0.4 else rng.choice(w.NAMES)
        return f"My {animal} is called {name}.", "I will remember that.", f"What is the name of my {animal}?", f"Your {animal} is called {name}."
    if kind == 4:
        number = rng.randrange(10, 9999)
        return f"Remember the number {number}.", "I will remember that.", "What number did I tell you?", f"The number is {number}."
    word = some_word(rng)
    return f"The secret word is {word}.", "I will remember that.", "What is the secret word?", f"The secret word is {word}."


def recall(rng: random.Random) -> Example:
    """Say something, talk about something else, ask for it."""
    say, answer, ask, reply = _memory(rng)
    between: list[Message] = []
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        between += facts(rng).messages if rng.random() < 0.6 else small_talk(rng)
    if rng.random() < 0.25:
        other = _memory(rng)
        if other[2] != ask:
            between += [user(other[0]), assistant(other[1])]
    return Example("recall", f"recall:{say}", [user(say), assistant(answer), *between, user(ask), assistant(reply)])


def obey(rng: random.Random) -> Example:
    """A rule in the system turn changes the form of the answer."""
    base = facts(rng)
    question, answer = base.messages
    text = str(answer["content"])
    kind = rng.randrange(4)
    if kind == 0:
        rule, out = rng.choice(["Answer in capital letters.", "Always answer in uppercase."]), text.upper()
    elif kind == 1:
        name = rng.choice(w.NAMES)
        rule, out = rng.choice(["Begin each answer with \"{}:\".", "Start every answer with \"{}:\"."]).format(name), f"{name}: {text}"
    elif kind == 2:
        rule, out = rng.choice(["You are a helpful assistant.", "You are a helpful assistant. Be brief.", "Be kind."]), text
    else:
        word = some_word(rng)
        rule, out = rng.choice(["End each answer with \"{}\".", "Finish every answer with \"{}\"."]).format(word), f"{text} {word}"
    return Example("obey", f"obey:{kind}/{base.key}", [system(rule), question, assistant(out)])
