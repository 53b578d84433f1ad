"""English to German, Spanish and French: the sentences of the speech grammar, and words and short phrases by themselves."""

import random
import re

from ...common import words as w
from ...tiny_whisper import grammar as g
from .example import Example, assistant, instruct, single, system, user

LANGUAGES = {"de": "German", "es": "Spanish", "fr": "French"}
_COLUMN = {"de": 1, "es": 2, "fr": 3}
_INSTRUCTIONS = ["Translate to {}"] * 3 + """Translate into {}|Translate this sentence into {}|Translate the text to {}|Say it in {}|Translate this to {}
Write this in {}|Put this into {}|Translate the sentence to {}|In {}""".replace("\n", "|").split("|")
_RULES = ["Translate what the user says into {}.", "Translate into {}.", "You translate English to {}.", "Translate everything to {}."]
_WORD_ASKS = ["How do you say \"{1}\" in {0}?", "How do you say {1} in {0}?", "What is \"{1}\" in {0}?", "What is {1} in {0}?", "What is the {0} word for {1}?",
              "Translate \"{1}\" to {0}.", "Translate {1} into {0}.", "{1} in {0}?", "Translate to {0}: {1}", "Translate to {0}:\n{1}"]
_FIRST_NAMES = ["Anna", "Peter", "Maria", "Thomas"]
# Words and greetings that the sentences of the grammar do not have.
_MORE = [tuple(row.split("|")) for row in """water|Wasser|agua|eau;milk|Milch|leche|lait;apple|Apfel|manzana|pomme;cheese|Käse|queso|fromage;wine|Wein|vino|vin
coffee|Kaffee|café|café;friend|Freund|amigo|ami;woman|Frau|mujer|femme;man|Mann|hombre|homme;sun|Sonne|sol|soleil;moon|Mond|luna|lune
school|Schule|escuela|école;city|Stadt|ciudad|ville;river|Fluss|río|rivière;day|Tag|día|jour;night|Nacht|noche|nuit;week|Woche|semana|semaine
year|Jahr|año|an;hand|Hand|mano|main;mother|Mutter|madre|mère;father|Vater|padre|père;hello|hallo|hola|bonjour;good morning|guten Morgen|buenos días|bonjour
good evening|guten Abend|buenas tardes|bonsoir;good night|gute Nacht|buenas noches|bonne nuit;goodbye|auf Wiedersehen|adiós|au revoir
thank you|danke|gracias|merci;please|bitte|por favor|s'il vous plaît;yes|ja|sí|oui;no|nein|no|non""".replace("\n", ";").split(";")]


def _phrases() -> list[tuple[str, ...]]:
    """English, German, Spanish, French: nouns with and without their article, colours and sizes, numbers, places, times, people, greetings."""
    bare = [(row[0], *(cell[1] for cell in row[1:])) for row in g.NOUNS]
    named = [tuple(g._noun(row, False)) for row in g.NOUNS]
    adjectives = [tuple(g._adjective(row, g.NOUNS[1])) for row in g.ADJECTIVES]
    return [*bare, *named, *adjectives, *g.NUMBERS, *g.PLACES, *g.TIMES, *(row for row in g.WHO if row[0] not in _FIRST_NAMES), *_MORE]


PHRASES = _phrases()


def _renamed(rng: random.Random, made: g.Sentence) -> tuple[str, dict[str, str]]:
    """The sentence in all languages, two in three with another person's name, a third of these invented."""
    texts = {language: made.text(language) for language in g.LANGUAGES}
    old = texts["en"].split(" ")[0]
    if old in _FIRST_NAMES and rng.random() < 0.66:
        new = w.pseudo_word(rng, 2).capitalize() if rng.random() < 0.5 else rng.choice(w.NAMES)
        texts = {language: new + text.removeprefix(old) for language, text in texts.items()}
    return texts["en"], texts


def _languages(english: str) -> list[str]:
    """The languages in which the grammar's sentence is good text; for the ear it takes `cherche` for needs and one Spanish copula for all."""
    return [code for code in LANGUAGES if not (code == "fr" and " needs " in english) and not (code == "es" and " is " in english and "broken" in english)]


def translate(rng: random.Random) -> Example:
    """A sentence of the grammar; what is held out is held out under every name and in every language."""
    made = g.sentence(rng)
    english, texts = _renamed(rng, made)
    key = "translate:" + re.sub(f"^({'|'.join(_FIRST_NAMES)}) ", "Anna ", made.en)
    code = rng.choice(_languages(english))
    if rng.random() < 0.12:
        return Example("translate", key, [system(rng.choice(_RULES).format(LANGUAGES[code])), user(english), assistant(texts[code])])
    if rng.random() < 0.12:
        question = f"How do you say \"{english.rstrip('.')}\" in {LANGUAGES[code]}?"
    else:
        question = instruct(rng, rng.choice(_INSTRUCTIONS).format(LANGUAGES[code]), english)
    return Example("translate", key, [user(question), assistant(texts[code])])


def phrase(rng: random.Random) -> Example:
    """A word or a short phrase: a closed set, so that what is held out is the phrase with language and wording."""
    row, code, form = rng.choice(PHRASES), rng.choice(list(LANGUAGES)), rng.randrange(len(_WORD_ASKS))
    return single("phrase", f"{row[0]}/{code}/{form}", _WORD_ASKS[form].format(LANGUAGES[code], row[0]), row[_COLUMN[code]])
