"""The one command line of all models: generate, train, export, evaluate."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch

from .card import write_card
from .errors import refuse


@dataclass(frozen=True)
class Steps:
    """What is peculiar to one model. Its modules `export`, `evaluate` and `card` are imported when a verb needs them."""

    name: str
    generate: Callable[[], None]
    train: Callable[[float, bool, Path | None], None]
    minutes: float


def run(steps: Steps) -> None:
    """Parse the command line and do one step."""
    package = f"models.training.{steps.name.replace('-', '_')}"
    parser = argparse.ArgumentParser(prog=f"python -m {package}")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("generate", help="build the tokenizer and whatever data is prepared beforehand")
    train = verbs.add_parser("train", help="train within a budget of minutes")
    train.add_argument("--minutes", type=float, default=steps.minutes)
    train.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    train.add_argument("--pause-file", type=Path, help="sleep between steps while this file exists")
    train.add_argument("--threads", type=int, default=2)
    verbs.add_parser("export", help=f"write models/{steps.name} from the checkpoint")
    verbs.add_parser("evaluate", help="measure the exported files and write eval.json")
    options = parser.parse_args()
    if options.verb == "train":
        if options.minutes <= 0 or options.threads < 1:
            refuse("--minutes and --threads must be above zero.")
        torch.set_num_threads(options.threads)
        steps.train(options.minutes, options.resume, options.pause_file)
    elif options.verb == "generate":
        steps.generate()
    elif options.verb == "export":
        import_module(f"{package}.export").export()
    else:
        import_module(f"{package}.evaluate").evaluate()
        write_card(import_module(f"{package}.card").CARD)
