"""Word error rates, languages, times and silence on held-out sentences spoken by held-out voices."""

import random

import numpy as np

from ..common.errors import refuse
from ..common.paths import model_dir, work_dir
from ..common.report import load_cost, print_scores, share, write_eval
from ..common.wer import word_error_rate
from .alignment import heads_of, word_starts
from .export import DECODER, ENCODER
from .grammar import LANGUAGES
from .listen import Listener
from .pool import Clip, Pool
from .train import NAME
from .vocabulary import SECONDS, STEP
from .voices import RATE
from .windows import Maker, Window

CLIPS, RECORDINGS = 60, 12
WANTED = {"en transcribe": 0.1, "de transcribe": 0.15, "es transcribe": 0.15, "fr transcribe": 0.15,
          "de translate": 0.2, "es translate": 0.2, "fr translate": 0.2, "language": 0.95, "timestamps": 0.9}


def _window(pool: Pool, clip: Clip) -> np.ndarray:
    """Half a second of near silence, the sentence, then nothing."""
    noise = np.random.RandomState(clip.start % 1000).randn(8000 + clip.length + 3200).astype(np.float32) * np.float32(10**-3.5)
    noise[8000 : 8000 + clip.length] += pool.wave(clip)
    return noise


def _sentences(listener: Listener, pool: Pool) -> tuple[dict[str, float], float]:
    scores, languages = {}, []
    for language in LANGUAGES:
        clips = [clip for clip in pool.clips if clip.language == language][:CLIPS]
        heard = [listener.hear(_window(pool, clip)) for clip in clips]
        languages += [listener.language(states, LANGUAGES) == language for states in heard]
        for task in ("transcribe",) if language == "en" else ("transcribe", "translate"):
            texts = [listener.vocabulary.plain(listener.tokens(states, language, task, False)) for states in heard]
            said = [clip.english if task == "translate" else clip.text for clip in clips]
            scores[f"{language} {task}"] = word_error_rate(list(zip(texts, said, strict=True)))
    return scores, share(languages)


def _times(listener: Listener, window: Window) -> list[bool]:
    """For each boundary of each sentence: found within 0.2 s, in order."""
    zero = listener.vocabulary.time(0)
    tokens = listener.tokens(listener.hear(window.wave), window.language, "transcribe", True)
    found = [(token - zero) * STEP for token in tokens if token >= zero]
    truth = [time for placed in window.placed for time in (placed.start, placed.end)]
    return [len(found) > index and abs(found[index] - time) <= 0.2 for index, time in enumerate(truth)]


def _recording(pool: Pool, language: str, rng: random.Random) -> tuple[np.ndarray, str]:
    """Nine sentences with pauses, longer than two windows."""
    clips = rng.sample([clip for clip in pool.clips if clip.language == language], 9)
    parts = [part for clip in clips for part in (np.zeros(int(rng.uniform(0.4, 0.9) * RATE), np.float32), pool.wave(clip))]
    wave = np.concatenate(parts)
    noise = np.random.RandomState(rng.randrange(1000)).randn(len(wave)).astype(np.float32)
    return wave + noise * np.float32(10**-3.5), " ".join(clip.text for clip in clips)


def _read(listener: Listener, wave: np.ndarray, language: str) -> str:
    """Window after window; a window that ends with a sentence's beginning is followed by one that starts after the last whole sentence."""
    zero, texts, at = listener.vocabulary.time(0), [], 0
    while len(wave) - at > RATE // 10:
        tokens = listener.tokens(listener.hear(wave[at:]), language, "transcribe", True)
        texts.append(listener.vocabulary.plain(tokens))
        goes_on = len(tokens) > 2 and min(tokens[-2:]) >= zero
        at += max(RATE, round((tokens[-2] - zero) * STEP * RATE)) if goes_on else SECONDS * RATE
    return " ".join(texts)


def _recordings(listener: Listener, pool: Pool) -> float:
    rng = random.Random("evaluate/recordings")
    drawn = [(language, *_recording(pool, language, rng)) for language in LANGUAGES for _ in range(RECORDINGS // len(LANGUAGES))]
    return word_error_rate([(_read(listener, wave, language), said) for language, wave, said in drawn])


def evaluate() -> None:
    """Measure the exported files and write eval.json."""
    folder = model_dir(NAME)
    if not (folder / ENCODER).is_file() or not (folder / DECODER).is_file():
        refuse(f"{folder} has no exported model: run `export` first.")
    listener, pool = Listener(folder), Pool(work_dir(NAME), "test")
    scores, languages = _sentences(listener, pool)
    maker = Maker(pool, random.Random("evaluate/times"))
    windows = [window for window in (maker.window(SECONDS, 3, 1.2) for _ in range(90)) if window.placed and not any(p.cut for p in window.placed)][:60]
    times = [flag for window in windows for flag in _times(listener, window)]
    noise = [np.random.RandomState(seed).randn(SECONDS * 16_000).astype(np.float32) * np.float32(10 ** -(2.2 + seed / 20)) for seed in range(30)]
    silent = [listener.no_speech(listener.hear(wave)) > 0.5 for wave in noise]
    spoken = [listener.no_speech(listener.hear(window.wave)) < 0.5 for window in windows[:30]]
    scores["wordStarts"] = word_starts(listener, heads_of(folder))
    scores |= {"recordings": _recordings(listener, pool), "language": languages, "timestamps": share(times), "silence": share(silent), "speechNotSilence": share(spoken)}
    write_eval(NAME, {
        "gates": {name: {"score": value, **({"wanted": WANTED[name]} if name in WANTED else {})} for name, value in scores.items()},
        "clipsPerLanguage": CLIPS, "load": load_cost([folder / ENCODER, folder / DECODER]),
    })
    print_scores(scores)
