"""Speech synthesis by espeak-ng and flite: 16 kHz samples without silence at the ends."""

import random
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.io import wavfile
from scipy.signal import resample_poly

from ..common.errors import refuse

RATE = 16_000
ACCENTS = {"en": ["en-us", "en-gb"], "de": ["de"], "es": ["es", "es-419"], "fr": ["fr-fr"]}
TRAINED = ["", "+m1", "+m3", "+m4", "+m5", "+m8", "+f1", "+f2", "+f4", "+f5", "+klatt", "+klatt2"]
HELD_OUT = ["+m7", "+f3", "+klatt3", "+m2"]
FLITE_TRAINED = ["awb", "rms", "kal16"]
FLITE_HELD_OUT = ["slt"]


@dataclass(frozen=True)
class Voice:
    """A synthesiser's voice with its speed and pitch."""

    name: str
    speed: int
    pitch: int


def need_synthesisers() -> None:
    """Say what to install before anything is written."""
    for program in ("espeak-ng", "flite"):
        if shutil.which(program) is None:
            refuse(f"{program} is not installed; it makes the speech that tiny-whisper is trained on.")


def draw_voice(rng: random.Random, language: str, held_out: bool) -> Voice:
    """A voice of the wanted side of the split; one in seven English sentences is flite's."""
    if language == "en" and not held_out and rng.random() < 0.15:
        return Voice("flite:" + rng.choice(FLITE_TRAINED), 0, 0)
    variant = rng.choice(HELD_OUT if held_out else TRAINED)
    return Voice(rng.choice(ACCENTS[language]) + variant, rng.randrange(140, 205), rng.randrange(25, 75))


def _flite(text: str, voice: str) -> tuple[int, np.ndarray]:
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        subprocess.run(["flite", "-voice", voice, "-t", text, "-o", file.name], check=True, timeout=20)
        rate, samples = wavfile.read(file.name)
    return rate, samples


def _espeak(text: str, voice: Voice) -> tuple[int, np.ndarray]:
    command = ["espeak-ng", "-v", voice.name, "-s", str(voice.speed), "-p", str(voice.pitch), "--stdout", text]
    data = subprocess.run(command, capture_output=True, check=True, timeout=20).stdout
    return 22_050, np.frombuffer(data[44 : 44 + (len(data) - 44) // 2 * 2], np.int16)


def speak(text: str, voice: Voice) -> np.ndarray:
    """int16 samples, peak at 0.5, silence cut from both ends."""
    rate, raw = _flite(text, voice.name[6:]) if voice.name.startswith("flite:") else _espeak(text, voice)
    wave = raw.astype(np.float32) / 32768
    if rate != RATE:
        divisor = int(np.gcd(rate, RATE))
        wave = resample_poly(wave, RATE // divisor, rate // divisor).astype(np.float32)
    wave /= max(float(np.abs(wave).max()), 1e-3) * 2
    loud = np.flatnonzero(np.abs(wave) > 0.01)
    return np.round(wave[max(0, loud[0] - 320) : loud[-1] + 640] * 32767).astype(np.int16)


def write_wav(path: Path, wave: np.ndarray) -> None:
    """16-bit file."""
    wavfile.write(path, RATE, wave)
