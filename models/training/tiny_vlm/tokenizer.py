"""Byte-level BPE of the questions, digits one by one."""

import json
import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from .questions import FOREIGN, GREETING, GREETINGS, NO_IMAGE, OUTSIDE, as_typed, questions
from .render import RULES, SPECIAL
from .scenes import view

VOCABULARY = 768


def corpus(count: int) -> list[str]:
    """Questions and answers of the generator."""
    rng = random.Random(5)
    lines = [*RULES, *FOREIGN, *GREETINGS, GREETING, NO_IMAGE, OUTSIDE] * 4
    for _ in range(count):
        lines += [text for q in questions(view(rng), rng, 3) for text in (as_typed(q.text, rng), q.answer)]
    return lines


def build(path: Path) -> None:
    """Train the vocabulary and write tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(6000), trainer)
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
