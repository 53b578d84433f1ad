"""The mean of a run's weights with those of an earlier checkpoint of the same run.

A run that goes on to learn one task better loses a little of the others; the mean keeps both:
`python -m models.training.tiny_chat.average checkpoint.before.pt --share 0.25`, then `export` and `evaluate`."""

import argparse
from pathlib import Path

from ..common.errors import refuse
from ..common.loop import Checkpoint, read_checkpoint
from ..common.paths import work_dir
from .train import NAME


def average(earlier: Path, share: float) -> None:
    """Give the earlier weights this share in checkpoint.pt."""
    newest = Checkpoint(work_dir(NAME) / "checkpoint.pt")
    before, state = read_checkpoint(earlier)["model"], newest.load()
    weights = state["model"]
    if {name: tensor.shape for name, tensor in before.items()} != {name: tensor.shape for name, tensor in weights.items()}:
        refuse(f"{earlier} does not have the shape of {newest.path}.")
    newest.save({**state, "model": {name: tensor.lerp(before[name], share) for name, tensor in weights.items()}})
    print(f"{newest.path} has {share:g} of {earlier}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m models.training.tiny_chat.average")
    parser.add_argument("earlier", help="a checkpoint; a bare name lies beside checkpoint.pt")
    parser.add_argument("--share", type=float, default=0.25)
    options = parser.parse_args()
    if not 0 < options.share < 1:
        refuse("--share must be between zero and one.")
    given = Path(options.earlier)
    average(given if given.parent != Path(".") else work_dir(NAME) / given, options.share)
