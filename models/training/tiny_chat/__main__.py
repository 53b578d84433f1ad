"""Command line of tiny-chat."""

from ..common.cli import Steps, run
from ..common.paths import work_dir
from . import tokenizer
from .train import NAME, train


def generate() -> None:
    """Text is drawn while training; only the vocabulary is made beforehand."""
    tokenizer.build(work_dir(NAME) / "tokenizer.json")


def export() -> None:
    """Write the committed folder."""
    from .export import export as write

    write()


def evaluate() -> None:
    """Measure the committed folder and write its card."""
    from ..common.card import write_card
    from .card import CARD
    from .evaluate import evaluate as measure

    measure()
    write_card(CARD)


run(Steps(NAME, generate, train, export, evaluate, minutes=120))
