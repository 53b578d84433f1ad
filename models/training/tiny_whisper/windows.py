"""Training windows: sentences placed in time, noise around them, and the rows of tokens that belong to them."""

import random
from dataclasses import dataclass

import numpy as np

from .pool import Clip, Pool
from .vocabulary import Vocabulary
from .voices import RATE


@dataclass(frozen=True)
class Placed:
    """A sentence and where it lies in the window, in seconds; `cut` when the window ends inside it."""

    clip: Clip
    start: float
    end: float
    cut: bool


@dataclass(frozen=True)
class Window:
    """Samples and what is said in them; no sentences means no speech, `begun` that the window starts inside a sentence that is not its own."""

    wave: np.ndarray
    language: str
    placed: tuple[Placed, ...]
    begun: bool = False

    @property
    def is_whole(self) -> bool:
        """True when the sentences are all that is heard."""
        return bool(self.placed) and not self.begun and not any(placed.cut for placed in self.placed)


class Maker:
    """Draws windows from a pool."""

    def __init__(self, pool: Pool, rng: random.Random) -> None:
        self.pool = pool
        self.rng = rng
        self.noise = np.random.RandomState(rng.randrange(1 << 30))
        self.by_language: dict[str, list[Clip]] = {}
        for clip in pool.clips:
            self.by_language.setdefault(clip.language, []).append(clip)

    def cutting(self, seconds: float) -> Window:
        """As a window cuts a long recording: up to its end, after long pauses too, and one in eight begins in the end of a sentence."""
        gap = 1.5 if self.rng.random() < 0.8 else 7.0
        return self.window(seconds, 6, gap, begun=self.rng.random() < 0.12, heard=0.05)

    def window(self, seconds: float, most: int, gap: float = 1.0, begun: bool = False, heard: float = 0.5) -> Window:
        """Up to `most` sentences of one language, and perhaps one that is cut after at least `heard` seconds; one window in twenty is silent."""
        rng, total = self.rng, int(seconds * RATE)
        wave = np.zeros(total, np.float32)
        language = rng.choice(list(self.by_language))
        placed: list[Placed] = []
        at = int(rng.random() ** 2 * gap * RATE)
        if begun:
            rest = self._rest(rng.choice(self.by_language[language]))
            wave[: len(rest)] += rest
            at += len(rest) + int(0.15 * RATE)
        if rng.random() > 0.05:
            for _ in range(rng.randrange(1, most + 1)):
                clip = rng.choice(self.by_language[language])
                if at + clip.length > total:
                    if placed and at < total - heard * RATE and rng.random() < 0.5:
                        wave[at:] += self._speech(clip)[: total - at]
                        placed.append(Placed(clip, at / RATE, seconds, True))
                    break
                wave[at : at + clip.length] += self._speech(clip)
                placed.append(Placed(clip, at / RATE, (at + clip.length) / RATE, False))
                at += clip.length + int(rng.uniform(0.15, gap) * RATE)
        return Window(self._noisy(wave, at if placed else total), language, tuple(placed), begun)

    def _rest(self, clip: Clip) -> np.ndarray:
        """The last tenth to half of a sentence, which the window before this one has written down."""
        return self._speech(clip)[int(self.rng.uniform(0.5, 0.9) * clip.length) :]

    def _speech(self, clip: Clip) -> np.ndarray:
        return self.pool.wave(clip) * np.float32(self.rng.uniform(0.25, 1.6))

    def _noisy(self, wave: np.ndarray, end: int) -> np.ndarray:
        """White or low noise; half the time the window's rest is digital silence, as in padded files."""
        rng = self.rng
        until = len(wave) if rng.random() < 0.5 else min(len(wave), end + int(rng.random() * 0.3 * RATE))
        if until > 0 and rng.random() < 0.9:
            noise = self.noise.randn(until).astype(np.float32)
            if rng.random() < 0.4:
                noise = np.convolve(noise, np.ones(8, np.float32) / 3, "same")[:until]
            wave[:until] += noise * np.float32(10 ** rng.uniform(-4.5, -2.1))
        return wave


def tokens(vocabulary: Vocabulary, window: Window, task: str, timestamps: bool) -> tuple[list[int], list[int]]:
    """(row, targets): the given prefix is no target, except for the language or no-speech token after the start."""
    prefix = vocabulary.prefix(window.language, task, timestamps)
    first = vocabulary.id(f"<|{window.language}|>" if window.placed or window.begun else "<|nospeech|>")
    spoken: list[int] = []
    for placed in window.placed:
        if placed.cut:
            spoken += [vocabulary.time(placed.start)] if timestamps else []
            continue
        text = placed.clip.english if task == "translate" else placed.clip.text
        body = vocabulary.text(text)
        spoken += [vocabulary.time(placed.start), *body, vocabulary.time(placed.end)] if timestamps else body
    row = [*prefix, *spoken, vocabulary.end]
    return row[:-1], [first, *([-100] * (len(prefix) - 2)), *spoken, vocabulary.end]


def rows_of(vocabulary: Vocabulary, rng: random.Random, window: Window) -> list[tuple[list[int], list[int]]]:
    """Two rows for each window: the transcript and the translation, with and without times."""
    cut = any(placed.cut for placed in window.placed)
    first = cut or rng.random() < 0.45
    second = "translate" if window.language != "en" or rng.random() < 0.2 else "transcribe"
    return [tokens(vocabulary, window, "transcribe", first), tokens(vocabulary, window, second, cut or not first)]
