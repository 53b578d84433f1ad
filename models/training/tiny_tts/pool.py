"""Reference recordings on the disk: samples, pitch, and where each letter ends."""

import json
import random
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..common.errors import refuse
from ..tiny_whisper.grammar import LANGUAGES, Sentence, sentence
from ..tiny_whisper.voices import need_synthesisers
from . import pitch
from .letters import learn_divisions
from .reference import HOP, VOICES, boundaries, speak, voice_of

LONGEST = 340  # frames


@dataclass(frozen=True)
class Clip:
    """What is said, by which voice, where its frames are, and the frame at which each token ends."""

    language: str
    text: str
    voice: int
    start: int
    frames: int
    ends: list[float]


class Pool:
    """Clips with memory-mapped samples and pitch; unvoiced frames have a negative pitch."""

    def __init__(self, folder: Path, name: str) -> None:
        index = folder / f"{name}.jsonl"
        if not index.is_file():
            refuse(f"There is no speech at {index}: run `generate` first.")
        self.clips = [Clip(**json.loads(line)) for line in index.read_text().splitlines()]
        self.samples = np.memmap(folder / f"{name}.i16", np.int16, "r")
        self.hertz = np.memmap(folder / f"{name}.f32", np.float32, "r")

    def wave(self, clip: Clip) -> np.ndarray:
        """Samples of one clip."""
        return self.samples[clip.start * HOP : (clip.start + clip.frames) * HOP].astype(np.float32) / 32768

    def pitch(self, clip: Clip) -> tuple[np.ndarray, np.ndarray]:
        """Hertz and whether voiced."""
        hertz = np.asarray(self.hertz[clip.start : clip.start + clip.frames])
        return np.abs(hertz), hertz > 0


def drawn(seed: str, counts: dict[str, int], held_out: bool) -> list[tuple[str, Sentence]]:
    """As many sentences of each language as asked for."""
    rng = random.Random(seed)
    said = [(language, sentence(rng, held_out)) for language in LANGUAGES for _ in range(counts[language])]
    rng.shuffle(said)
    return said


def build(folder: Path, name: str, said: list[tuple[str, Sentence]], show: Callable[[str], None] = print) -> None:
    """Every sentence in both voices; letters are divided within each language. The index is written last."""
    need_synthesisers()
    asked = [(language, one.text(language), voice) for language, one in said for voice in VOICES]
    spoken = [(language, text, voice, speak(text, voice_of(language, voice))) for language, text, voice in asked]
    kept = [row for row in spoken if row[3].frames <= LONGEST]
    dividers = {code: learn_divisions({part.pair for language, _, _, one in kept if language == code for part in one.parts}) for code in LANGUAGES}
    rows, start, voices = [], 0, list(VOICES)
    with open(folder / f"{name}.i16", "wb") as samples, open(folder / f"{name}.f32", "wb") as pitches:
        for language, text, voice, one in kept:
            samples.write(np.round(one.wave * 32767).astype(np.int16).tobytes())
            hertz, voiced = pitch.track(one.wave)
            pitches.write(np.where(voiced, hertz, -hertz).astype(np.float32).tobytes())
            ends = [round(float(end), 2) for end in boundaries(one, dividers[language])]
            rows.append(Clip(language, text, voices.index(voice), start, one.frames, ends))
            start += one.frames
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))
    show(f"{name}: {len(rows)} clips, {start * HOP / 16_000 / 60:.0f} minutes")
