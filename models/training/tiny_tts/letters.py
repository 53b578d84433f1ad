"""Letters as the voices read them, and how long each is spoken.

espeak-ng reports when each phoneme begins and to which word it belongs. Which letters of a word a phoneme comes from is
estimated: each letter stands for none to four phonemes in order, and the likeliest division is found by Viterbi's
algorithm with probabilities that are counted from the divisions before.
"""

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

START, PAD, END = "^", "_", "$"
SYMBOLS = [PAD, START, END, " ", *"abcdefghijklmnopqrstuvwxyz", "'", ",", ".", "?", "!", "-", *"ßœæ", *"\u0300\u0301\u0302\u0303\u0308\u0327"]
IDS = {symbol: index for index, symbol in enumerate(SYMBOLS)}
MOST = 4
ROUNDS = 8

Pair = tuple[str, tuple[str, ...]]


def spelled(text: str) -> str:
    """As the server reads a text: small letters with their marks apart; what the voices do not know is left out."""
    return "".join(letter for letter in unicodedata.normalize("NFD", text.lower()) if letter in IDS)


def token_ids(text: str) -> list[int]:
    """Start, letters and end, without the padding between them."""
    return [IDS[START], *(IDS[letter] for letter in spelled(text)), IDS[END]]


@dataclass
class Divider:
    """Divides the phonemes of words among their letters."""

    counts: dict[str, Counter[str]]
    sizes: dict[str, Counter[int]]

    def _cost(self, letter: str, phonemes: Sequence[str]) -> float:
        sizes, counts = self.sizes[letter], self.counts[letter]
        likely = math.log((sizes[len(phonemes)] + 0.1) / (sizes.total() + 0.5))
        return -likely - sum(math.log((counts[phoneme] + 0.02) / (counts.total() + 2)) for phoneme in phonemes)

    def divide(self, letters: str, phonemes: tuple[str, ...]) -> list[int]:
        """The number of phonemes of each letter."""
        best: list[dict[int, tuple[float, int]]] = [{0: (0.0, 0)}]
        for index, letter in enumerate(letters):
            row: dict[int, tuple[float, int]] = {}
            least = len(phonemes) - MOST * (len(letters) - index - 1)
            for used, (cost, _) in best[-1].items():
                for size in range(min(MOST, len(phonemes) - used) + 1):
                    total = cost + self._cost(letter, phonemes[used : used + size])
                    if used + size >= least and total < row.get(used + size, (math.inf, 0))[0]:
                        row[used + size] = (total, size)
            best.append(row)
        at, sizes = len(phonemes), []
        for row in reversed(best[1:]):
            sizes.append(row[at][1])
            at -= sizes[-1]
        return sizes[::-1]


def _counted(divided: list[tuple[Pair, list[int]]]) -> Divider:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    sizes: dict[str, Counter[int]] = defaultdict(Counter)
    for (letters, phonemes), numbers in divided:
        at = 0
        for letter, number in zip(letters, numbers, strict=True):
            sizes[letter][number] += 1
            counts[letter].update(phonemes[at : at + number])
            at += number
    return Divider(counts, sizes)


def _even(pair: Pair) -> list[int]:
    letters, phonemes = pair
    places = [index * len(letters) // len(phonemes) for index in range(len(phonemes))]
    return [places.count(index) for index in range(len(letters))]


def learn_divisions(pairs: set[Pair]) -> Divider:
    """From even divisions to those that agree with each other."""
    ordered = sorted(pairs)
    divider = _counted([(pair, _even(pair)) for pair in ordered])
    for _ in range(ROUNDS):
        divider = _counted([(pair, divider.divide(*pair)) for pair in ordered])
    return divider
