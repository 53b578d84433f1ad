"""Record what the logits processors of transformers make of one row, for sampling-processors.test.ts.

Usage, from the repository root: python test/golden/make-sampling-processors.py
Needs the packages of models/training/requirements.txt.
"""

import json
from pathlib import Path

import torch
import transformers
from transformers.generation import logits_process as lp

torch.manual_seed(7)
LOGITS = (torch.randn(24) * 3).round(decimals=3)
PROMPT = [3, 5, 5, 9]
GENERATED = [1, 7, 7, 2]

CASES = {
    "temperature 0.5": [lp.TemperatureLogitsWarper(0.5)],
    "temperature 1.7": [lp.TemperatureLogitsWarper(1.7)],
    "topK 5": [lp.TopKLogitsWarper(5)],
    "topK 1": [lp.TopKLogitsWarper(1)],
    "topP 0.5": [lp.TopPLogitsWarper(0.5)],
    "topP 0.9": [lp.TopPLogitsWarper(0.9)],
    "topP 0.99": [lp.TopPLogitsWarper(0.99)],
    "minP 0.1": [lp.MinPLogitsWarper(0.1)],
    "repetitionPenalty 1.3": [lp.RepetitionPenaltyLogitsProcessor(1.3)],
    "logitBias": [lp.SequenceBiasLogitsProcessor({(4,): 2.5, (11,): -100.0})],
    "all": [
        lp.RepetitionPenaltyLogitsProcessor(1.2), lp.TemperatureLogitsWarper(0.8), lp.TopKLogitsWarper(12),
        lp.TopPLogitsWarper(0.95), lp.MinPLogitsWarper(0.02),
    ],
}


def main() -> None:
    """Write the file beside this script."""
    ids = torch.tensor([PROMPT + GENERATED])
    results = {}
    for name, processors in CASES.items():
        scores = LOGITS.clone()[None]
        for processor in processors:
            scores = processor(ids, scores)
        results[name] = [None if value == float("-inf") else round(value, 5) for value in scores[0].tolist()]
    data = {
        "source": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "logits": [round(value, 3) for value in LOGITS.tolist()], "prompt": PROMPT, "generated": GENERATED,
        "logSoftmax": [round(value, 5) for value in torch.log_softmax(LOGITS, -1).tolist()], "results": results,
    }
    Path(__file__).with_name("sampling-processors.json").write_text(json.dumps(data) + "\n")


main()
