"""Byte-level BPE and Whisper's special tokens in Whisper's order."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from .grammar import LANGUAGES, sentence

BASE = 620
SECONDS = 10
SPECIAL = [
    "<|endoftext|>", "<|startoftranscript|>", *(f"<|{code}|>" for code in LANGUAGES), "<|translate|>", "<|transcribe|>",
    "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>",
]
STEP = 0.02
TIMES = [f"<|{index * STEP:.2f}|>" for index in range(round(SECONDS / STEP) + 1)]


def build(path: Path) -> None:
    """Train on the grammar's sentences in all four languages."""
    rng = random.Random(1)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    drawn = [sentence(rng) for _ in range(4000)]
    trainer = trainers.BpeTrainer(vocab_size=BASE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([" " + said.text(code) for said in drawn for code in LANGUAGES], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(time, special=False, normalized=False) for time in TIMES])
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")


@dataclass(frozen=True)
class Vocabulary:
    """Ids that training and evaluation need by name."""

    tokenizer: Tokenizer

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """From tokenizer.json."""
        return cls(Tokenizer.from_file(str(path)))

    def id(self, token: str) -> int:
        """The id of a token that must exist."""
        found = self.tokenizer.token_to_id(token)
        if found is None:
            raise KeyError(token)
        return int(found)

    def time(self, seconds: float) -> int:
        """The token of a time, rounded to 0.02 s."""
        return self.id(TIMES[0]) + min(len(TIMES) - 1, round(seconds / STEP))

    def text(self, text: str) -> list[int]:
        """Ordinary tokens, with the leading space that Whisper's segments have."""
        return list(self.tokenizer.encode(" " + text).ids)

    def prefix(self, language: str, task: str, timestamps: bool) -> list[int]:
        """What is given to the decoder before it speaks."""
        row = [self.id("<|startoftranscript|>"), self.id(f"<|{language}|>"), self.id(f"<|{task}|>")]
        return row if timestamps else [*row, self.id("<|notimestamps|>")]

    @property
    def end(self) -> int:
        """End of the transcript, also the padding."""
        return self.id("<|endoftext|>")

    @property
    def size(self) -> int:
        """All tokens."""
        return int(self.tokenizer.get_vocab_size())

    def plain(self, ids: list[int]) -> str:
        """Text without special tokens and times."""
        return str(self.tokenizer.decode([i for i in ids if i < self.end], skip_special_tokens=False)).strip()
