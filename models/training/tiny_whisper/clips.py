"""The committed clips under test/fixtures/audio: held-out sentences, held-out voices, four formats.

Run with `python -m models.training.tiny_whisper.clips`; needs espeak-ng and ffmpeg, and the exported model for
the `heard` column, which is what the exported files answer in ONNX Runtime.
"""

import random
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..common.layout import write_json
from ..common.paths import REPOSITORY, model_dir
from .grammar import LANGUAGES, Sentence, sentence
from .listen import Listener
from .voices import RATE, draw_voice, need_synthesisers, speak, write_wav

FOLDER = REPOSITORY / "test" / "fixtures" / "audio"


@dataclass(frozen=True)
class Plan:
    """One file: its name, language, number of sentences and ffmpeg's arguments for its format."""

    name: str
    language: str
    sentences: int = 1
    arguments: tuple[str, ...] = ()


PLANS = [
    Plan("en-1.wav", "en"), Plan("en-2.flac", "en"), Plan("en-3.opus", "en", 1, ("-c:a", "libopus", "-b:a", "24k")),
    Plan("en-4.mp3", "en", 1, ("-ar", "44100", "-ac", "2", "-b:a", "64k")), Plan("de-1.wav", "de"), Plan("de-2.ogg", "de", 1, ("-c:a", "libopus", "-b:a", "24k")),
    Plan("es-1.flac", "es"), Plan("es-2.mp3", "es", 1, ("-b:a", "48k")), Plan("fr-1.wav", "fr", 1, ("-ar", "22050")), Plan("fr-2.flac", "fr"),
    Plan("en-three.flac", "en", 3), Plan("en-long.flac", "en", 9),
]


def _wave(rng: random.Random, plan: Plan) -> tuple[np.ndarray, list[Sentence], str, list[list[float]]]:
    """Sentences of one voice with pauses between them."""
    voice, said, times = draw_voice(rng, plan.language, True), [], []
    parts, at = [np.zeros(4800, np.int16)], 4800
    for _ in range(plan.sentences):
        said.append(sentence(rng, True))
        spoken = speak(said[-1].text(plan.language), voice)
        pause = np.zeros(int(rng.uniform(0.5, 0.9) * RATE), np.int16)
        times.append([round(at / RATE, 2), round((at + len(spoken)) / RATE, 2)])
        at += len(spoken) + len(pause)
        parts += [spoken, pause]
    wave = np.concatenate(parts).astype(np.float32)
    wave += np.random.RandomState(rng.randrange(1000)).randn(len(wave)).astype(np.float32) * 8
    return np.clip(np.round(wave), -32768, 32767).astype(np.int16), said, voice.name, times


def _encode(wave: np.ndarray, plan: Plan) -> None:
    target = FOLDER / plan.name
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "clip.wav"
        write_wav(source, wave)
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", str(source), "-map_metadata", "-1", "-fflags", "+bitexact", *plan.arguments, str(target)], check=True)


def _row(plan: Plan, listener: Listener | None) -> dict[str, object]:
    wave, said, voice, times = _wave(random.Random(f"clip/{plan.name}"), plan)
    _encode(wave, plan)
    row: dict[str, object] = {
        "file": plan.name, "language": plan.language, "voice": voice, "seconds": round(len(wave) / RATE, 2),
        "text": " ".join(s.text(plan.language) for s in said), "english": " ".join(s.en for s in said), "sentences": times,
    }
    if listener is not None and len(wave) <= 10 * RATE:
        heard = listener.hear(wave.astype(np.float32) / 32768)
        plain = [listener.vocabulary.plain(listener.tokens(heard, plan.language, task, False)) for task in ("transcribe", "translate")]
        row |= {"heard": plain[0], "heardEnglish": plain[1], "heardLanguage": listener.language(heard, LANGUAGES)}
    return row


def build() -> None:
    """Write all clips, a silent one, and clips.json."""
    need_synthesisers()
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = model_dir("tiny-whisper")
    listener = Listener(folder) if (folder / "onnx").is_dir() else None
    rows = [_row(plan, listener) for plan in PLANS]
    quiet = np.round(np.random.RandomState(1).randn(3 * RATE) * 20).astype(np.int16)
    write_wav(FOLDER / "silence.wav", quiet)
    rows.append({"file": "silence.wav", "language": None, "voice": None, "seconds": 3.0, "text": "", "english": "", "sentences": []})
    write_json(FOLDER / "clips.json", {"source": "espeak-ng, held-out sentences and voices", "clips": rows})
    print(f"wrote {len(rows)} clips to {FOLDER}")


if __name__ == "__main__":
    build()
