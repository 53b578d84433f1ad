"""Command line of tiny-tts."""

from ..common.cli import Steps, run
from . import NAME
from .train import generate, train

run(Steps(NAME, generate, train, minutes=60))
