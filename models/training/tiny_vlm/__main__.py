"""Command line of tiny-vlm."""

from ..common.cli import Steps, run
from . import NAME
from .train import generate, train


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
