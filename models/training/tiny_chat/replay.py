"""Examples of what the model can do, for fine-tunings: the worker mixes them in so that it keeps its skills."""

import json
import random
from itertools import groupby

from tokenizers import Tokenizer

from ..common.layout import write_bytes, write_manifest
from ..common.paths import model_dir
from ..common.split import is_held_out
from .batches import encode
from .data.example import Example
from .data.mix import MAKERS, MIX
from .export import NAME
from .render import example_segments

MIXED = 1000
# Sets of words and facts, each of which is an example of itself alone, and the tasks that are lost first.
NAMED = {"facts": 400, "translate": 350, "phrase": 250, "refusal": 60, "context": 250, "spell": 200, "sentiment": 100}
LONGEST = 160


def line(tokenizer: Tokenizer, example: Example) -> str | None:
    """Token ids and the ranges of them that are learned; nothing for long examples."""
    ids, weights = encode(tokenizer, example_segments(example))
    if len(ids) > LONGEST:
        return None
    learned = [index for index, weight in enumerate(weights) if weight >= 0.5]
    runs = groupby(enumerate(learned), lambda pair: pair[1] - pair[0])
    ranges = [[run[0][1], run[-1][1] + 1] for run in (list(group) for _, group in runs)]
    return json.dumps({"token_ids": ids, "targets": ranges}, separators=(",", ":"))


def write() -> None:
    """Write models/tiny-chat/replay.jsonl from problems that training may see."""
    folder = model_dir(NAME)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng = random.Random("replay")
    makers, weights = [maker for maker, _ in MIX], [weight**0.5 for _, weight in MIX]
    named = [MAKERS[name] for name, count in NAMED.items() for _ in range(count)]
    drawn = named + rng.choices(makers, weights, k=MIXED)
    lines: dict[str, None] = {}
    for maker in drawn:
        for _ in range(20):
            made = maker(rng)
            text = None if is_held_out(made.key) else line(tokenizer, made)
            if text is not None and text not in lines:
                lines[text] = None
                break
    write_bytes(folder / "replay.jsonl", "".join(f"{text}\n" for text in lines).encode())
    write_manifest(NAME)
    print(f"wrote {len(lines)} examples")


if __name__ == "__main__":
    write()
