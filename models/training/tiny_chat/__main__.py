"""Command line of tiny-chat."""

from ..common.cli import Steps, run
from ..common.paths import work_dir
from . import tokenizer
from .train import NAME, train


def generate() -> None:
    """Text is drawn while training; only the vocabulary is made beforehand."""
    tokenizer.build(work_dir(NAME) / "tokenizer.json")


run(Steps(NAME, generate, train, minutes=120))
