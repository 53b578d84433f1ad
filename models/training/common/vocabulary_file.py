"""Reading tokenizer.json, or saying in one sentence why it cannot be read."""

from pathlib import Path

from tokenizers import Tokenizer

from .errors import refuse


def load_tokenizer(path: Path) -> Tokenizer:
    """The vocabulary that `generate` made."""
    if not path.is_file():
        refuse(f"There is no tokenizer at {path}: run `generate` first.")
    try:
        return Tokenizer.from_file(str(path))
    except Exception:
        refuse(f"{path} is not a tokenizer file: run `generate` again.")
