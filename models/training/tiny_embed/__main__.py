"""Command line of tiny-embed."""

from ..common.cli import Steps, run
from .train import NAME, generate, train

run(Steps(NAME, generate, train, minutes=30))
