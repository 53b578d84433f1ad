"""Running the exported encoder and merged decoder greedily."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
from transformers import WhisperFeatureExtractor

from ..common.whisper_export import cache_parts
from .export import DECODER, ENCODER
from .model import HEADS, LAYERS, WIDTH
from .vocabulary import SECONDS, Vocabulary


class Listener:
    """One window at a time, as the hub's files are used."""

    def __init__(self, folder: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.encoder, self.decoder = (ort.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"]) for name in (ENCODER, DECODER))
        self.vocabulary = Vocabulary.load(folder / "tokenizer.json")
        self.extractor = WhisperFeatureExtractor.from_pretrained(folder)
        self.parts = cache_parts(LAYERS)

    def hear(self, wave: np.ndarray) -> np.ndarray:
        """Encoder states of one window; the wave is padded or cut to ten seconds."""
        mel = self.extractor(wave[: SECONDS * 16_000], sampling_rate=16_000, return_tensors="np").input_features
        return self.encoder.run(None, {"input_features": mel.astype(np.float32)})[0]

    def _step(self, ids: list[int], heard: np.ndarray, past: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        first = next(iter(past.values())).shape[2] == 0
        names = ["logits", *(f"present.{part}" for part in self.parts)]
        logits, *present = self.decoder.run(names, {
            "input_ids": np.array([ids]), "encoder_hidden_states": heard, "use_cache_branch": np.array([not first]), **past,
        })
        return logits[0, -1], {f"past_key_values.{part}": value for part, value in zip(self.parts, present, strict=True)}

    def _empty(self) -> dict[str, np.ndarray]:
        return {f"past_key_values.{part}": np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32) for part in self.parts}

    def attentions(self, heard: np.ndarray, ids: list[int]) -> np.ndarray:
        """Weights of cross-attention over a whole row: [layers, heads, tokens, positions]."""
        feeds = {"input_ids": np.array([ids]), "encoder_hidden_states": heard, "use_cache_branch": np.array([False]), **self._empty()}
        return np.concatenate(self.decoder.run([f"cross_attentions.{layer}" for layer in range(LAYERS)], feeds))

    def start(self, heard: np.ndarray) -> np.ndarray:
        """Probabilities after the start token: languages and no speech."""
        logits, _ = self._step([self.vocabulary.id("<|startoftranscript|>")], heard, self._empty())
        shares = np.exp(logits.astype(np.float64) - logits.max())
        return shares / shares.sum()

    def language(self, heard: np.ndarray, languages: tuple[str, ...]) -> str:
        """The likeliest language."""
        shares = self.start(heard)
        return max(languages, key=lambda code: shares[self.vocabulary.id(f"<|{code}|>")])

    def no_speech(self, heard: np.ndarray) -> float:
        """The probability that nothing is said."""
        return float(self.start(heard)[self.vocabulary.id("<|nospeech|>")])

    def tokens(self, heard: np.ndarray, language: str, task: str, timestamps: bool, longest: int = 100) -> list[int]:
        """Greedy tokens after the prefix, without the end."""
        chunk, past, out = self.vocabulary.prefix(language, task, timestamps), self._empty(), []
        while len(out) < longest:
            logits, past = self._step(chunk, heard, past)
            if timestamps:
                logits[self.vocabulary.id("<|notimestamps|>")] = -np.inf
            token = int(logits.argmax())
            if token == self.vocabulary.end:
                break
            out.append(token)
            chunk = [token]
        return out
