"""The heads of cross-attention that follow the speech, chosen by how well they time the words that espeak-ng speaks.

Run with `python -m models.training.tiny_whisper.alignment`: it makes the attentions outputs of the committed decoder,
writes `alignment_heads` and measures the times of words on held-out sentences and voices. Needs espeak-ng's library.
"""

import json
import random
from pathlib import Path

import numpy as np
import onnx
from scipy.ndimage import median_filter
from transformers.models.whisper.generation_whisper import _dynamic_time_warping

from ..common.attention_outputs import name_attentions
from ..common.layout import write_bytes, write_json, write_manifest
from ..common.paths import model_dir
from .export import DECODER
from .grammar import LANGUAGES, sentence
from .listen import Listener
from .model import HEADS, LAYERS
from .spoken_words import Spoken, speak_words
from .train import NAME
from .vocabulary import STEP
from .voices import RATE, draw_voice

SENTENCES, HEADS_MAX, WITHIN = 15, 4, 0.2
Head = tuple[int, int]


class Sample:
    """A spoken sentence with the attentions of all heads over its text."""

    def __init__(self, listener: Listener, language: str, spoken: Spoken) -> None:
        vocabulary = listener.vocabulary
        text = vocabulary.text(" ".join(spoken.words))
        prefix = vocabulary.prefix(language, "transcribe", False)
        weights = listener.attentions(listener.hear(spoken.wave), [*prefix, *text, vocabulary.end])
        self.starts, self.first, self.positions = np.array(spoken.starts), len(prefix) - 1, int(len(spoken.wave) / RATE / STEP)
        pieces = [vocabulary.tokenizer.decode([token]) for token in text]
        self.boundaries = [index for index, piece in enumerate(pieces) if piece.startswith(" ")]
        heard = weights[..., : self.positions]
        heard = heard / heard.sum(-1, keepdims=True)
        heard = (heard - heard.mean(-2, keepdims=True)) / heard.std(-2, keepdims=True)
        self.maps = median_filter(heard, (1, 1, 1, 7), mode="mirror")

    @property
    def is_usable(self) -> bool:
        """Every word has a start and a first token."""
        return len(self.boundaries) == len(self.starts) and bool(np.isfinite(self.starts).all())

    def errors(self, heads: list[Head]) -> np.ndarray:
        """Seconds between the found and the true start of each word after the first, which begins with its sentence."""
        matrix = np.mean([self.maps[layer, head] for layer, head in heads], 0)[self.first : -1]
        rows, columns = _dynamic_time_warping(-matrix.astype(np.float64))
        starts = columns[np.pad(np.diff(rows), (1, 0), constant_values=1).astype(bool)] * STEP
        return np.abs(starts[self.boundaries] - self.starts)[1:]


def samples(listener: Listener, seed: str, held_out: bool) -> list[Sample]:
    """Sentences of all languages, each after a pause."""
    rng, made = random.Random(seed), []
    while len(made) < SENTENCES * len(LANGUAGES):
        language = LANGUAGES[len(made) % len(LANGUAGES)]
        voice = draw_voice(rng, language, held_out)
        if voice.name.startswith("flite:"):
            continue
        sample = Sample(listener, language, speak_words(sentence(rng, held_out).text(language), voice, rng.uniform(0.2, 1.5)))
        if sample.is_usable:
            made.append(sample)
    return made


def choose(clips: list[Sample]) -> list[Head]:
    """The best head, then the ones that bring most words within 0.2 s, one by one."""
    chosen: list[Head] = []
    best = 0.0
    while len(chosen) < HEADS_MAX:
        others = [(layer, head) for layer in range(LAYERS) for head in range(HEADS) if (layer, head) not in chosen]
        shares = {head: _within([*chosen, head], clips) for head in others}
        head = max(shares, key=lambda one: shares[one])
        if shares[head] <= best:
            break
        best = shares[head]
        chosen.append(head)
    return sorted(chosen)


def _within(heads: list[Head], clips: list[Sample]) -> float:
    return float((np.concatenate([clip.errors(heads) for clip in clips]) <= WITHIN).mean())


def word_starts(listener: Listener, heads: list[Head]) -> float:
    """The share of words of held-out sentences whose start is found within 0.2 s."""
    return round(_within(heads, samples(listener, "evaluate/words", True)), 3)


def heads_of(folder: Path) -> list[Head]:
    """What generation_config.json lists."""
    return [(layer, head) for layer, head in json.loads((folder / "generation_config.json").read_text())["alignment_heads"]]


def write_heads() -> None:
    """Name the attentions of the exported decoder and write the chosen heads."""
    folder = model_dir(NAME)
    decoder = onnx.load(folder / DECODER)
    name_attentions(decoder, HEADS)
    write_bytes(folder / DECODER, decoder.SerializeToString())
    listener = Listener(folder)
    heads = choose(samples(listener, "choose/words", False))
    settings = json.loads((folder / "generation_config.json").read_text())
    write_json(folder / "generation_config.json", {**settings, "alignment_heads": heads})
    write_manifest(NAME)
    print(f"alignment heads {heads}")


def main() -> None:
    """Write the heads and add their measure to eval.json and the card."""
    from ..common.card import write_card
    from .card import CARD

    write_heads()
    folder = model_dir(NAME)
    report = json.loads((folder / "eval.json").read_text())
    report["gates"]["wordStarts"] = {"score": word_starts(Listener(folder), heads_of(folder))}
    write_json(folder / "eval.json", report)
    write_card(CARD)
    print(report["gates"]["wordStarts"])


if __name__ == "__main__":
    main()
