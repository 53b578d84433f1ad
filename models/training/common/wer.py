"""Word error rate."""

import re


def normal_words(text: str) -> list[str]:
    """Lower case, no punctuation."""
    return re.sub(r"[^\w\s']", " ", text.lower()).split()


def word_errors(heard: str, said: str) -> tuple[int, int]:
    """(edit distance in words, words said)."""
    left, right = normal_words(heard), normal_words(said)
    row = list(range(len(right) + 1))
    for i, word in enumerate(left, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(right, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1], len(right)


def word_error_rate(pairs: list[tuple[str, str]]) -> float:
    """Errors over all words of (heard, said) pairs."""
    counts = [word_errors(heard, said) for heard, said in pairs]
    return round(sum(errors for errors, _ in counts) / max(1, sum(words for _, words in counts)), 3)
