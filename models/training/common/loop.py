"""The training loop's frame: a minute budget, a pause file and checkpoints that survive a kill."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .errors import refuse

CHECKPOINT_SECONDS = 150.0


class Budget:
    """Counts the minutes a run may still train; time spent paused is not counted."""

    def __init__(self, minutes: float, spent: float, pause_file: Path | None) -> None:
        self.total = minutes * 60
        self.spent = spent
        self.pause_file = pause_file
        self._last = time.monotonic()

    def tick(self) -> float:
        """Add the time since the last call and return the used fraction of the budget."""
        now = time.monotonic()
        self.spent += now - self._last
        self._last = now
        if self.pause_file is not None:
            self._sleep_while_paused()
        return min(1.0, self.spent / self.total)

    def _sleep_while_paused(self) -> None:
        while self.pause_file is not None and self.pause_file.exists():
            time.sleep(1.0)
            self._last = time.monotonic()


class Checkpoint:
    """Everything a run needs to go on: weights, optimizer, random states, counters."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, state: dict[str, Any]) -> None:
        """Write beside the old file and rename, so that a kill never leaves half a checkpoint."""
        state = {
            **state,
            "torch_rng": torch.get_rng_state(),
            "python_rng": random.getstate(),
            "numpy_rng": np.random.get_state(),
        }
        temporary = self.path.with_suffix(".tmp")
        torch.save(state, temporary)
        os.replace(temporary, self.path)

    def load(self) -> dict[str, Any]:
        """Read the state and restore the global random states."""
        state = read_checkpoint(self.path)
        torch.set_rng_state(state["torch_rng"])
        random.setstate(state["python_rng"])
        np.random.set_state(state["numpy_rng"])
        return state


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or say in one sentence why it cannot be read."""
    if not path.is_file():
        refuse(f"There is no checkpoint at {path}: run `train` first.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        refuse(f"{path} is not a checkpoint of this trainer ({type(error).__name__}).")
    if not isinstance(state, dict) or "model" not in state:
        refuse(f"{path} is not a checkpoint of this trainer (no model inside).")
    return state


def restore(path: Path, state: dict[str, Any], take: Callable[[dict[str, Any]], Any]) -> tuple[int, float]:
    """Give the state to the trainer and return (step, seconds spent), or say that it does not fit."""
    try:
        take(state)
        return int(state["step"]), float(state["spent"])
    except (KeyError, RuntimeError, ValueError, TypeError):
        refuse(f"{path} is not a checkpoint of this trainer (its contents do not fit the model).")


def run_steps(
    budget: Budget,
    checkpoint: Checkpoint,
    snapshot: Callable[[], dict[str, Any]],
    step: int = 0,
) -> Iterator[tuple[int, float]]:
    """Yield (step, used fraction) until the budget is spent, writing a checkpoint now and then."""
    saved = time.monotonic()
    while (fraction := budget.tick()) < 1.0:
        yield step, fraction
        step += 1
        if time.monotonic() - saved > CHECKPOINT_SECONDS:
            checkpoint.save({**snapshot(), "step": step, "spent": budget.spent})
            saved = time.monotonic()
    checkpoint.save({**snapshot(), "step": step, "spent": budget.spent})


def learning_rate(step: int, fraction: float, warmup: int, hold: float = 0.5) -> float:
    """Linear warm-up, constant until `hold` of the budget, then linear decay to 2 percent."""
    warm = min(1.0, (step + 1) / warmup)
    return warm if fraction < hold else warm * max(0.02, (1 - fraction) / (1 - hold))
