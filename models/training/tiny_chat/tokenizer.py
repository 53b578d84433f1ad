"""Byte-level BPE: digits one by one, capital letters one by one, so that case changes letter by letter."""

import json
import random
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .data.mix import MIX
from .render import SPECIAL, TAGS, example_segments

VOCABULARY = 2048


def corpus(seed: int, count: int) -> list[str]:
    """Text of the generator, open vocabulary included, so that unknown words stay short."""
    rng = random.Random(seed)
    makers, weights = [maker for maker, _ in MIX], [weight for _, weight in MIX]
    drawn = (rng.choices(makers, weights)[0](rng) for _ in range(count))
    lines = []
    for example in drawn:
        text = "".join(piece for piece, _ in example_segments(example))
        for mark in SPECIAL + TAGS:
            text = text.replace(mark, "\n")
        lines.append(text)
    return lines


def build(path: Path) -> Tokenizer:
    """Train the vocabulary and write tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(" ?[A-Z]"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL + TAGS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(5, 40_000), trainer)
    data = json.loads(tokenizer.to_str())
    for token in data["added_tokens"]:
        token["special"] = token["content"] in SPECIAL
    path.write_text(json.dumps(data, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n")
    return Tokenizer.from_file(str(path))
