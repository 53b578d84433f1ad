"""Records log-mel features of transformers' WhisperFeatureExtractor for test/golden/log-mel.test.ts.

    python make-log-mel.py > log-mel.json      (transformers 5.23, numpy 2.4)
"""

import json

import numpy as np
from transformers import WhisperFeatureExtractor

COLUMNS = (0, 1, 50, 200, 500, 729, -1)


def signal(seconds: float) -> np.ndarray:
    """A rising tone with a second one that comes and goes; the test makes the same samples."""
    time = np.arange(int(seconds * 16000)) / 16000
    rising = 0.4 * np.sin(2 * np.pi * (200 + 300 * time) * time)
    return (rising + 0.1 * np.sin(2 * np.pi * 3000 * time) * (time % 1 < 0.5)).astype(np.float32)


def record(mel_bins: int, chunk_seconds: int, seconds: float) -> dict:
    extractor = WhisperFeatureExtractor(feature_size=mel_bins, chunk_length=chunk_seconds)
    features = extractor(signal(seconds), sampling_rate=16000, return_tensors="np").input_features[0]
    columns = {str(c % features.shape[1]): [round(float(v), 5) for v in features[:, c]] for c in COLUMNS}
    return {
        "melBins": mel_bins,
        "chunkSeconds": chunk_seconds,
        "seconds": seconds,
        "frames": features.shape[1],
        "mean": float(features.mean()),
        "columns": columns,
    }


print(json.dumps([record(80, 30, 7.3), record(128, 10, 10.0), record(80, 10, 9.99)]))
