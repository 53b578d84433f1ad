"""Both halves side by side, each in a process of one thread or more: they meet in the image code alone."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import torch

from ..common.errors import refuse
from ..common.paths import work_dir
from ..common.vocabulary_file import load_tokenizer
from . import NAME, tokenizer
from .train_language import train_language
from .train_vision import train_vision


def generate() -> None:
    """The tokenizer; images and questions are drawn while training."""
    tokenizer.build(work_dir(NAME) / "tokenizer.json")


def _half(work: Callable[[float, bool, Path | None], None], threads: int, minutes: float, resume: bool, pause_file: Path | None) -> None:
    torch.set_num_threads(threads)
    work(minutes, resume, pause_file)


def train(minutes: float, resume: bool, pause_file: Path | None) -> None:
    """Train within the budget."""
    load_tokenizer(work_dir(NAME) / "tokenizer.json")
    threads = max(1, torch.get_num_threads() // 2)
    started = multiprocessing.get_context("spawn")
    halves = [started.Process(target=_half, args=(work, threads, minutes, resume, pause_file)) for work in (train_vision, train_language)]
    for half in halves:
        half.start()
    for half in halves:
        half.join()
    if any(half.exitcode for half in halves):
        refuse("One half of the training failed: its message is above.")
