"""Command line of tiny-moderation."""

from ..common.cli import Steps, run
from .train import NAME, generate, train

run(Steps(NAME, generate, train, minutes=10))
