"""The two reference voices, espeak-ng's: samples at 16 kHz and the time of every letter."""

from dataclasses import dataclass

import numpy as np
from scipy.signal import resample_poly

from ..tiny_whisper.spoken_words import PHONEME, Event, synthesize
from ..tiny_whisper.voices import RATE, Voice
from .letters import Divider, Pair, spelled

HOP = 200  # samples of a frame, 12.5 ms
SPEED, PITCH = 160, 50
LEAD, TAIL = 3, 12  # frames of silence before and after
ACCENTS = {"en": "en-us", "de": "de", "es": "es", "fr": "fr"}
VOICES = {"female": "+f2", "male": ""}  # variants of espeak-ng; the order is that of the speaker ids
PAUSES = {"_", "_:", "_::"}


@dataclass(frozen=True)
class Part:
    """A word with what follows it up to the next one, and when its phonemes and the pause after them begin."""

    letters: str
    phonemes: tuple[str, ...]
    starts: tuple[float, ...]
    pause: float | None

    @property
    def word(self) -> str:
        """Without spaces and marks at its end."""
        return self.letters.rstrip(" ,.!?")

    @property
    def pair(self) -> Pair:
        """What a division is about."""
        return self.word, self.phonemes


@dataclass(frozen=True)
class Reference:
    """A sentence in a reference voice."""

    wave: np.ndarray
    parts: list[Part]
    frames: int


def voice_of(language: str, voice: str) -> Voice:
    """espeak-ng's name of a voice in a language."""
    return Voice(ACCENTS[language] + VOICES[voice], SPEED, PITCH)


def _words(text: str, events: list[Event], rate: int) -> list[Part]:
    """Phonemes by the word that they belong to; pauses belong to the word before them."""
    words: list[tuple[int, list[Event], list[float]]] = []
    for event in events:
        if event.kind != PHONEME or event.phoneme == "":
            continue
        if event.phoneme in PAUSES:
            if words:
                words[-1][2].append(event.sample / rate)
        elif not words or event.position > words[-1][0]:
            words.append((event.position, [event], []))
        else:
            words[-1][1].append(event)
    ends = [position for position, _, _ in words[1:]] + [len(text)]
    parts = []
    for (position, phonemes, pauses), end in zip(words, ends, strict=True):
        starts = tuple(event.sample / rate * RATE / HOP + LEAD for event in phonemes)
        pause = min(pauses) * RATE / HOP + LEAD if pauses else None
        parts.append(Part(spelled(text[0 if not parts else position : end]), tuple(event.phoneme for event in phonemes), starts, pause))
    return parts


def speak(text: str, voice: Voice) -> Reference:
    """With silence at both ends, and a whole number of frames."""
    raw, rate, events = synthesize(text, voice)
    wave = resample_poly(raw.astype(np.float32) / 32768, RATE, rate).astype(np.float32)
    loud = np.flatnonzero(np.abs(wave) > 0.003)
    frames = LEAD + int(loud[-1]) // HOP + 1 + TAIL
    whole = np.zeros(frames * HOP, np.float32)
    spoken = wave[: (frames - LEAD) * HOP]
    whole[LEAD * HOP : LEAD * HOP + len(spoken)] = spoken
    return Reference(whole, _words(text, events, rate), frames)


def boundaries(reference: Reference, divider: Divider) -> list[float]:
    """Where each token ends, in frames: start, letters, end."""
    ends, parts = [float(reference.parts[0].starts[0])], reference.parts
    for index, part in enumerate(parts):
        following = parts[index + 1].starts[0] if index + 1 < len(parts) else float(reference.frames - TAIL)
        quiet = min(part.pause, following) if part.pause is not None else following
        at = 0
        times = [*part.starts, quiet]
        for number in divider.divide(*part.pair):
            at += number
            ends.append(min(times[at], following))
        ends += [following] * (len(part.letters) - len(part.word))
    return [*ends, float(reference.frames)]
