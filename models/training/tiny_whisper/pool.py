"""The pool of synthesised sentences: one flat file of samples and one line of JSON for each clip."""

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..common.errors import refuse
from .grammar import LANGUAGES, Sentence, sentence
from .voices import RATE, draw_voice, need_synthesisers, speak

LONGEST = int(4.0 * RATE)


@dataclass(frozen=True)
class Clip:
    """Where a sentence's samples are and what is said."""

    language: str
    text: str
    english: str
    voice: str
    start: int
    length: int


class Pool:
    """Clips in memory-mapped samples."""

    def __init__(self, folder: Path, name: str) -> None:
        index, samples = folder / f"{name}.jsonl", folder / f"{name}.i16"
        if not index.is_file() or not samples.is_file():
            refuse(f"There is no speech at {index}: run `generate` first.")
        self.clips = [Clip(**json.loads(line)) for line in index.read_text().splitlines()]
        self.samples = np.memmap(samples, np.int16, "r")
        if self.clips and self.clips[-1].start + self.clips[-1].length > len(self.samples):
            refuse(f"{samples} is shorter than its index says: run `generate` again.")

    def wave(self, clip: Clip) -> np.ndarray:
        """Samples of one clip."""
        return self.samples[clip.start : clip.start + clip.length].astype(np.float32) / 32768


def _make(seed: int, held_out: bool) -> tuple[str, Sentence, str, np.ndarray] | None:
    rng = random.Random(seed)
    language, said = LANGUAGES[seed % 4], sentence(rng, held_out)
    voice = draw_voice(rng, language, held_out)
    wave = speak(said.text(language), voice)
    return (language, said, voice.name, wave) if len(wave) <= LONGEST else None


def _clips(first: int, count: int, held_out: bool) -> Iterator[tuple[str, Sentence, str, np.ndarray]]:
    with ThreadPoolExecutor(2) as workers:
        for made in workers.map(lambda seed: _make(seed, held_out), range(first, first + count)):
            if made is not None:
                yield made


def build(folder: Path, name: str, first_seed: int, count: int, held_out: bool) -> None:
    """Synthesise and write; the index is written last, so that a broken run is noticed."""
    need_synthesisers()
    rows, start = [], 0
    with open(folder / f"{name}.i16", "wb") as file:
        for language, said, voice, wave in _clips(first_seed, count, held_out):
            file.write(wave.tobytes())
            rows.append(Clip(language, said.text(language), said.en, voice, start, len(wave)))
            start += len(wave)
            if len(rows) % 1000 == 0:
                print(f"{name}: {len(rows)} clips, {start / RATE / 60:.0f} minutes", flush=True)
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))
