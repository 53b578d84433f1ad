"""Command line of tiny-whisper."""

from ..common.cli import Steps, run
from .train import NAME, generate, train

run(Steps(NAME, generate, train, minutes=120))
