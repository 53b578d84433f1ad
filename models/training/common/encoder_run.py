"""Running an exported BERT on texts or pairs."""

from pathlib import Path

import numpy as np
import onnxruntime as ort
from tokenizers import Tokenizer


class EncoderRun:
    """A session with its tokenizer; texts of one call are padded to one length."""

    def __init__(self, folder: Path, file: str, longest: int = 256) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_padding(pad_id=0)
        self.tokenizer.enable_truncation(longest)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"])

    def run(self, texts: list[str] | list[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray]:
        """(first output, attention mask)."""
        rows = self.tokenizer.encode_batch(texts)
        mask = np.array([row.attention_mask for row in rows])
        feed = {"input_ids": np.array([row.ids for row in rows]), "attention_mask": mask, "token_type_ids": np.array([row.type_ids for row in rows])}
        return self.session.run(None, feed)[0], mask

    def embed(self, texts: list[str]) -> np.ndarray:
        """Mean-pooled vectors of length one."""
        parts = []
        for start in range(0, len(texts), 32):
            hidden, mask = self.run(texts[start : start + 32])
            vectors = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            parts.append(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        return np.concatenate(parts)

    def score(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """One logit for each pair."""
        return np.concatenate([self.run(pairs[start : start + 32])[0][:, 0] for start in range(0, len(pairs), 32)])
