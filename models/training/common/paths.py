"""Where things are: work files are git-ignored, exports are committed."""

from pathlib import Path

TRAINING = Path(__file__).resolve().parent.parent
MODELS = TRAINING.parent
REPOSITORY = MODELS.parent
WORK = TRAINING / ".work"
EVALS = REPOSITORY / "test" / "fixtures" / "evals"


def work_dir(name: str) -> Path:
    """The git-ignored folder of one model's checkpoints and generated data."""
    path = WORK / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def model_dir(name: str) -> Path:
    """The committed folder of one model, in the layout of the hub."""
    path = MODELS / name
    path.mkdir(parents=True, exist_ok=True)
    return path
