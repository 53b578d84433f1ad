"""What tiny-whisper understands of the exported files, and how far their waves are from the reference voices."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from ..common.errors import refuse
from ..common.layout import write_json
from ..common.paths import EVALS, model_dir
from ..common.report import load_cost, print_scores, share, write_eval
from ..common.wer import word_error_rate
from ..tiny_whisper import train as listening
from ..tiny_whisper.grammar import LANGUAGES, sentence
from ..tiny_whisper.listen import Listener
from ..tiny_whisper.voices import need_synthesisers
from . import NAME, pitch
from .distance import distortion
from .export import GRAPH, LENGTH_SCALE, NOISE_SCALE, piper_ids
from .reference import HOP, VOICES, speak, voice_of

COUNT, SHOWN = 60, 4  # sentences of each language; those of each language that the tests speak
WANTED, NEAR = 0.1, 0.5


class Speech:
    """The exported folder, as a server of Piper voices runs it."""

    def __init__(self, folder: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])

    def speak(self, text: str, voice: str, speed: float = 1.0) -> np.ndarray:
        """Samples at 16 kHz."""
        ids = np.array([piper_ids(text)])
        scales = np.array([NOISE_SCALE, LENGTH_SCALE / speed, 0.0], np.float32)
        feeds = {"input": ids, "input_lengths": np.array([ids.shape[1]]), "scales": scales, "sid": np.array([list(VOICES).index(voice)])}
        return self.session.run(None, feeds)[0].reshape(-1)


def _recognize(listener: Listener, wave: np.ndarray, language: str) -> str:
    return listener.vocabulary.plain(listener.tokens(listener.hear(wave), language, "transcribe", False))


def _cents(made: np.ndarray, reference: np.ndarray) -> float:
    """Between the mean pitches, in hundredths of a semitone."""
    means = [np.log2(hertz[voiced]).mean() for hertz, voiced in map(pitch.track, (made, reference))]
    return abs(float(means[0] - means[1])) * 1200


def _measured(speech: Speech, listener: Listener, language: str, texts: list[str]) -> dict[str, Any]:
    """Of one language, in both voices."""
    recognized, reference, made, distances = [], [], {}, []
    for text in texts:
        true = {voice: speak(text, voice_of(language, voice)).wave for voice in VOICES}
        said = {voice: speech.speak(text, voice) for voice in VOICES}
        apart = distortion(*true.values())
        for voice, other in zip(VOICES, reversed(VOICES), strict=True):
            made[text, voice] = said[voice], _recognize(listener, said[voice], language)
            recognized.append((made[text, voice][1], text))
            reference.append((_recognize(listener, true[voice], language), text))
            distances.append((distortion(said[voice], true[voice]), apart, distortion(said[voice], true[other]),
                              abs(len(said[voice]) / len(true[voice]) - 1), _cents(said[voice], true[voice])))
    return {"recognized": recognized, "reference": reference, "distances": distances, "made": made}


def _fixture(language: str, texts: list[str], measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Ids, length and what tiny-whisper recognizes, so that a server can be compared."""
    rows = []
    for index, text in enumerate(texts[:SHOWN]):
        voice = list(VOICES)[index % len(VOICES)]
        wave, recognized = measured["made"][text, voice]
        rows.append({"text": text, "language": language, "voice": voice, "ids": piper_ids(text), "frames": len(wave) // HOP, "recognized": recognized})
    return rows


def evaluate() -> None:
    """Measure and write eval.json and the sentences for the tests."""
    folder, ears = model_dir(NAME), model_dir(listening.NAME)
    if not (folder / GRAPH).is_file():
        refuse(f"{folder} has no exported model: run `export` first.")
    need_synthesisers()
    speech, listener = Speech(folder), Listener(ears)
    rng, gates, fixture, distances, references = random.Random("tiny-tts/evaluate"), {}, [], [], []
    for language in LANGUAGES:
        texts = [sentence(rng, True).text(language) for _ in range(COUNT)]
        measured = _measured(speech, listener, language, texts)
        gates[language] = {"score": word_error_rate(measured["recognized"]), "wanted": WANTED}
        references.append((f"{language}Reference", word_error_rate(measured["reference"])))
        distances += measured["distances"]
        fixture += _fixture(language, texts, measured)
    own, apart, other, lengths, cents = (np.array(column) for column in zip(*distances, strict=True))
    gates["distance"] = {"score": round(float(own.mean() / apart.mean()), 3), "wanted": NEAR}
    gates |= {name: {"score": value} for name, value in references}
    gates |= {"distortion": {"score": round(float(own.mean()), 2)}, "apart": {"score": round(float(apart.mean()), 2)}, "nearest": {"score": share(list(own < other))},
              "length": {"score": round(float(lengths.mean()), 3)}, "cents": {"score": round(float(np.median(cents)), 1)}}
    write_eval(NAME, {"gates": gates, "sentencesPerLanguage": COUNT, "load": load_cost([folder / GRAPH])})
    write_json(EVALS / f"{NAME}.json", fixture, compact=True)
    print_scores({name: entry["score"] for name, entry in gates.items()})
