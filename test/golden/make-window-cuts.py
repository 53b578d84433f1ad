"""Records where transformers' Whisper cuts its answers and reads on, for test/golden/window-cuts.test.ts.

    python make-window-cuts.py > window-cuts.json      (transformers 5.23, torch 2)
"""

import json
import random

import torch
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin

BEGIN = 100  # the token of 0.00 s
FRAMES = 3000  # of a window of 30 s
SECONDS_PER_TIMESTAMP = 0.02
FRAMES_PER_TIMESTAMP = 2


def answer(rng: random.Random) -> list[int]:
    """Segments as the rules for timestamps allow them, ended in one of the ways a model may end."""
    at, tokens = rng.randrange(50), []
    for _ in range(rng.randint(1, 6)):
        words = [rng.randrange(1, 90) for _ in range(rng.randint(1, 5))]
        end = min(1500, at + rng.randint(1, 400))
        tokens += [BEGIN + at, *words, BEGIN + end]
        at = min(1499, end + rng.choice([0, 0, rng.randint(0, 60)]))
    match rng.randrange(4):
        case 0:
            return tokens
        case 1:
            return [*tokens, tokens[-1]]
        case 2:
            return [*tokens, BEGIN + at, *[rng.randrange(1, 90) for _ in range(rng.randint(1, 5))]]
        case _:
            return tokens[: rng.randint(1, len(tokens))]


def record(tokens: list[int]) -> dict:
    segments, offset = WhisperGenerationMixin._retrieve_segment(
        seek_sequence=torch.tensor(tokens),
        seek_outputs=[None],
        time_offset=torch.zeros(1, dtype=torch.float64),
        timestamp_begin=BEGIN,
        seek_num_frames=torch.tensor([FRAMES]),
        time_precision=SECONDS_PER_TIMESTAMP,
        time_precision_features=0.01,
        input_stride=FRAMES_PER_TIMESTAMP,
        prev_idx=0,
        idx=0,
        return_token_timestamps=False,
        decoder_input_ids=torch.zeros(1, 4),
    )
    spans = [[round(float(segment["start"]), 2), round(float(segment["end"]), 2)] for segment in segments]
    return {"tokens": tokens, "spans": spans, "advanceFrames": int(offset)}


rng = random.Random(7)
print(json.dumps([record(answer(rng)) for _ in range(120)], separators=(",", ":")))
