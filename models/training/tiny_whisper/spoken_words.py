"""When espeak-ng speaks each word of a sentence, from the events of its library."""

import ctypes
import ctypes.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.signal import resample_poly

from ..common.errors import refuse
from .voices import RATE, Voice

_RETRIEVAL, _UTF8, _PHONEME_EVENTS, _SPEED, _PITCH = 1, 1, 1, 1, 3
WORD, PHONEME = 1, 7


class _Event(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("identifier", ctypes.c_uint), ("text_position", ctypes.c_int), ("length", ctypes.c_int),
                ("milliseconds", ctypes.c_int), ("sample", ctypes.c_int), ("user", ctypes.c_void_p), ("id", ctypes.c_char * 8)]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


@dataclass(frozen=True)
class Event:
    """A word or a phoneme begins: its place in the text and its sample at the rate of the synthesiser."""

    kind: int
    position: int
    sample: int
    phoneme: str


@dataclass(frozen=True)
class Spoken:
    """16 kHz samples with a peak at 0.5, and the start of each word in seconds."""

    wave: np.ndarray
    words: list[str]
    starts: list[float]


@cache
def _library() -> tuple[ctypes.CDLL, int]:
    name = ctypes.util.find_library("espeak-ng") or refuse("the library of espeak-ng is not installed.")
    library = ctypes.CDLL(name)
    return library, int(library.espeak_Initialize(_RETRIEVAL, 200, None, _PHONEME_EVENTS))


def _events(pointer: "ctypes._Pointer[_Event]") -> Iterator[_Event]:
    index = 0
    while pointer[index].type != 0:
        yield pointer[index]
        index += 1


def synthesize(text: str, voice: Voice) -> tuple[np.ndarray, int, list[Event]]:
    """16-bit samples, their rate, and the events in the order of speech."""
    library, rate = _library()
    pieces: list[np.ndarray] = []
    events: list[Event] = []

    def take(samples: "ctypes._Pointer[ctypes.c_short]", count: int, found: "ctypes._Pointer[_Event]") -> int:
        if count > 0:
            pieces.append(np.ctypeslib.as_array(samples, (count,)).copy())
        events.extend(Event(event.type, event.text_position - 1, event.sample, event.id.decode(errors="replace") if event.type == PHONEME else "")
                      for event in _events(found) if event.type in (WORD, PHONEME))
        return 0

    callback = _CALLBACK(take)
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetVoiceByName(voice.name.encode())
    library.espeak_SetParameter(_SPEED, voice.speed, 0)
    library.espeak_SetParameter(_PITCH, voice.pitch, 0)
    data = text.encode()
    library.espeak_Synth(data, len(data) + 1, 0, 1, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    return np.concatenate(pieces), rate, events


def speak_words(text: str, voice: Voice, lead: float) -> Spoken:
    """A sentence after `lead` seconds of silence."""
    samples, rate, events = synthesize(text, voice)
    wave = resample_poly(samples.astype(np.float32) / 32768, RATE, rate)
    wave = np.concatenate([np.zeros(int(lead * RATE)), wave / max(float(np.abs(wave).max()), 1e-3) / 2]).astype(np.float32)
    words, starts = [], []
    for match in re.finditer(r"\S+", text):
        inside = [event.sample / rate for event in events if event.kind == WORD and match.start() <= event.position < match.end()]
        words.append(match.group())
        starts.append(lead + min(inside) if inside else float("nan"))
    return Spoken(wave, words, starts)
