"""Running an exported decoder, in-place or growing cache, greedily and for scoring."""

from pathlib import Path

import numpy as np
import onnxruntime as ort


class DecoderRun:
    """One session and the shapes of its cache."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        shapes = {value.name: value.shape for value in self.session.get_inputs()}
        self.growing = "position_ids" in shapes
        self.past = {name: shape for name, shape in shapes.items() if name.startswith("past_key_values")}

    def empty(self, length: int) -> dict[str, np.ndarray]:
        """A cache for one row: of full length when it is written in place."""
        return {name: np.zeros((1, shape[1], 0 if self.growing else length, shape[3]), np.float32) for name, shape in self.past.items()}

    def run(self, ids: list[int], done: int, cache: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Logits of the new positions and the cache after them."""
        feed = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, done + len(ids)), np.int64), **cache}
        if self.growing:
            feed["position_ids"] = np.arange(done, done + len(ids))[None]
        logits, *present = self.session.run(None, feed)
        return logits[0], dict(zip(cache, present, strict=True))

    def greedy(self, prompt: list[int], stop: tuple[int, ...], longest: int = 128) -> list[int]:
        """The likeliest continuation token by token."""
        cache, chunk, done, out = self.empty(len(prompt) + longest), prompt, 0, []
        while len(out) < longest:
            logits, cache = self.run(chunk, done, cache)
            done += len(chunk)
            token = int(logits[-1].argmax())
            if token in stop:
                break
            out.append(token)
            chunk = [token]
        return out

    def log_likelihood(self, ids: list[int]) -> np.ndarray:
        """Log-probability of each token after the first."""
        logits, _ = self.run(ids, 0, self.empty(len(ids)))
        logits = logits[:-1].astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        return logits[np.arange(len(ids) - 1), ids[1:]]
