"""Command line of tiny-moderation."""

from ..common.cli import Steps, run
from .train import NAME, generate, train


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


run(Steps(NAME, generate, train, export, evaluate, minutes=10))
