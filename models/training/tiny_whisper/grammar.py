"""Sentences in English, German, Spanish and French that mean the same."""

import random
from dataclasses import dataclass

from ..common.split import is_held_out

LANGUAGES = ("en", "de", "es", "fr")

# en | de gender | es gender | fr gender
NOUNS = [tuple(cell.strip() for cell in row.split("|")) for row in """house|n Haus|f casa|f maison
dog|m Hund|m perro|m chien;cat|f Katze|m gato|m chat;car|n Auto|m coche|f voiture;book|n Buch|m libro|m livre
lamp|f Lampe|f lámpara|f lampe;tree|m Baum|m árbol|m arbre;ball|m Ball|f pelota|m ballon;door|f Tür|f puerta|f porte
window|n Fenster|f ventana|f fenêtre;table|m Tisch|f mesa|f table;flower|f Blume|f flor|f fleur;bird|m Vogel|m pájaro|m oiseau
horse|n Pferd|m caballo|m cheval;clock|f Uhr|m reloj|f horloge;picture|n Bild|m cuadro|m tableau;key|m Schlüssel|f llave|f clé
letter|m Brief|f carta|f lettre;bread|n Brot|m pan|m pain;boat|n Boot|m barco|m bateau""".replace("\n", ";").split(";")]
# en | de | es masculine, feminine | fr masculine, feminine
ADJECTIVES = [tuple(row.split("|")) for row in """red|rot|rojo roja|rouge rouge;blue|blau|azul azul|bleu bleue
green|grün|verde verde|vert verte;old|alt|viejo vieja|vieux vieille;new|neu|nuevo nueva|nouveau nouvelle
small|klein|pequeño pequeña|petit petite;big|groß|grande grande|grand grande;white|weiß|blanco blanca|blanc blanche
black|schwarz|negro negra|noir noire;beautiful|schön|bonito bonita|beau belle;cheap|billig|barato barata|bon_marché bon_marché
broken|kaputt|roto rota|cassé cassée""".replace("\n", ";").split(";")]
PLACES = [tuple(row.split("|")) for row in """in the garden|im Garten|en el jardín|dans le jardin;in the kitchen|in der Küche|en la cocina|dans la cuisine
at the station|am Bahnhof|en la estación|à la gare;near the river|am Fluss|cerca del río|près de la rivière
in the city|in der Stadt|en la ciudad|en ville;on the mountain|auf dem Berg|en la montaña|sur la montagne
at school|in der Schule|en la escuela|à l'école;in the forest|im Wald|en el bosque|dans la forêt""".replace("\n", ";").split(";")]
TIMES = [tuple(row.split("|")) for row in """today|heute|hoy|aujourd'hui;tomorrow|morgen|mañana|demain;now|jetzt|ahora|maintenant
on Monday|am Montag|el lunes|lundi;on Friday|am Freitag|el viernes|vendredi;in the evening|am Abend|por la noche|le soir""".replace("\n", ";").split(";")]
WHO = [tuple(row.split("|")) for row in """Anna|Anna|Anna|Anna;Peter|Peter|Peter|Peter;Maria|Maria|Maria|Maria;Thomas|Thomas|Thomas|Thomas
my mother|meine Mutter|mi madre|ma mère;my father|mein Vater|mi padre|mon père;the teacher|der Lehrer|el profesor|le professeur
the child|das Kind|el niño|l'enfant""".replace("\n", ";").split(";")]
VERBS = [tuple(row.split("|")) for row in """sees|sieht|ve|voit;buys|kauft|compra|achète;paints|malt|pinta|peint;finds|findet|encuentra|trouve
needs|braucht|necesita|cherche;takes|nimmt|toma|prend""".replace("\n", ";").split(";")]
NUMBERS = [tuple(row.split("|")) for row in """zero|null|cero|zéro;one|eins|uno|un;two|zwei|dos|deux;three|drei|tres|trois;four|vier|cuatro|quatre
five|fünf|cinco|cinq;six|sechs|seis|six;seven|sieben|siete|sept;eight|acht|ocho|huit;nine|neun|nueve|neuf;ten|zehn|diez|dix
twelve|zwölf|doce|douze;twenty|zwanzig|veinte|vingt""".replace("\n", ";").split(";")]
COMMANDS = [("please open", "bitte öffne", "por favor, abre", "ouvre"), ("please bring", "bitte bring", "por favor, trae", "apporte")]

NOUNS = [(row[0], *(tuple(cell.split(" ", 1)) for cell in row[1:])) for row in NOUNS]
ADJECTIVES = [tuple(cell.replace("_", " ") for cell in row) for row in ADJECTIVES]


@dataclass(frozen=True)
class Sentence:
    """The same sentence in all languages."""

    en: str
    de: str
    es: str
    fr: str

    def text(self, language: str) -> str:
        """In one of the four languages."""
        return str(getattr(self, language))

    @property
    def held_out(self) -> bool:
        """Decided by the English text: all four languages are held out together."""
        return is_held_out(f"speech:{self.en}", 10)


def _finish(words: list[str]) -> Sentence:
    return Sentence(*(text[0].upper() + text[1:] + "." for text in words))


def _elided(article: str, noun: str) -> str:
    """French le or la before a vowel or mute h."""
    return f"l'{noun}" if noun[0] in "aeéoi" or noun == "horloge" else f"{article} {noun}"


def _noun(row: tuple, accusative: bool) -> list[str]:
    en, (de_gender, de), (es_gender, es), (fr_gender, fr) = row
    german = {"m": "den" if accusative else "der", "f": "die", "n": "das"}[de_gender]
    return [f"the {en}", f"{german} {de}", f"{'el' if es_gender == 'm' else 'la'} {es}", _elided("le" if fr_gender == "m" else "la", fr)]


def _adjective(row: tuple, noun: tuple) -> list[str]:
    en, de, es, fr = row
    french = fr.split(" ") if fr != "bon marché bon marché" else ["bon marché", "bon marché"]
    return [en, de, es.split(" ")[noun[2][0] == "f"], french[noun[3][0] == "f"]]


def _is(rng: random.Random) -> Sentence:
    noun = rng.choice(NOUNS)
    first, second = (_adjective(row, noun) for row in rng.sample(ADJECTIVES, 2))
    copula, conjunction = ["is", "ist", "es", "est"], ["and", "und", "y", "et"]
    return _finish([f"{n} {c} {a} {j} {b}" for n, c, a, j, b in zip(_noun(noun, False), copula, first, conjunction, second, strict=True)])


def _does(rng: random.Random) -> Sentence:
    tail = rng.choice(PLACES if rng.random() < 0.6 else TIMES)
    rows = zip(rng.choice(WHO), rng.choice(VERBS), _noun(rng.choice(NOUNS), True), tail, strict=True)
    return _finish([" ".join(row) for row in rows])


def _wait(rng: random.Random) -> Sentence:
    we, hours = ["we wait", "wir warten", "esperamos", "nous attendons"], ["hours", "Stunden", "horas", "heures"]
    rows = zip(we, rng.choice(NUMBERS[2:]), hours, rng.choice(PLACES), strict=True)
    return _finish([" ".join(row) for row in rows])


def _number(rng: random.Random) -> Sentence:
    digits = [rng.choice(NUMBERS) for _ in range(rng.choice([2, 3, 3, 4]))]
    start = ["the number is", "die Nummer ist", "el número es", "le numéro est"]
    return _finish([" ".join(row) for row in zip(start, *digits, strict=True)])


def _command(rng: random.Random) -> Sentence:
    command, noun = rng.choice(COMMANDS), _noun(rng.choice(NOUNS), True)
    polite = [f"{a} {b}" for a, b in zip(command, noun, strict=True)]
    polite[3] += ", s'il te plaît"
    return _finish(polite)


def _salad(rng: random.Random) -> Sentence:
    """Words in no order that a grammar could guess, so that the model has to listen."""
    chosen = []
    for _ in range(rng.choice([2, 3, 3, 4])):
        kind = rng.random()
        if kind < 0.5:
            noun = rng.choice(NOUNS)
            chosen.append((noun[0], *(cell[1] for cell in noun[1:])))
        else:
            chosen.append(rng.choice(NUMBERS) if kind < 0.75 else tuple(_adjective(rng.choice(ADJECTIVES), NOUNS[1])))
    return _finish([", ".join(row) for row in zip(*chosen, strict=True)])


def sentence(rng: random.Random, held_out: bool = False) -> Sentence:
    """One sentence of the wanted side of the split."""
    while True:
        made = rng.choices([_is, _does, _wait, _number, _command, _salad], [2.2, 4, 1.2, 1.2, 1, 1.6])[0](rng)
        if made.held_out == held_out:
            return made
