"""One way to stop: a sentence for the user and exit code 2."""

import sys
from typing import NoReturn


def refuse(sentence: str) -> NoReturn:
    """Print one sentence on stderr and leave; nothing has been written at this point."""
    print(sentence, file=sys.stderr)
    raise SystemExit(2)
