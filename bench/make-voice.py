"""Writes a voice of the shape of MMS (VITS, 36 M parameters) with random weights, for speed alone.

    python bench/make-voice.py .data/bench/mms-shape      (packages of models/training/requirements.txt)

Speed does not depend on the values; each token takes five frames, as in speech.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import VitsConfig, VitsModel

LETTERS = "k abcdefghijlmnopqrstuvwxyz'-"


class Voice(torch.nn.Module):
    """The model as its exports have it: tokens and their mask in, samples out."""

    def __init__(self, model: VitsModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).waveform


def main(folder: Path) -> None:
    torch.manual_seed(0)
    config = VitsConfig(vocab_size=len(LETTERS), use_stochastic_duration_prediction=False, speaking_rate=0.2, noise_scale=0.0)
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    ids = torch.tensor([[0, 3, 0, 4, 0, 5, 0]])
    axes = {"input_ids": {0: "batch", 1: "length"}, "attention_mask": {0: "batch", 1: "length"}, "waveform": {0: "batch", 1: "samples"}}
    torch.onnx.export(Voice(VitsModel(config)).eval(), (ids, torch.ones_like(ids)), str(folder / "onnx" / "model.onnx"),
                      input_names=["input_ids", "attention_mask"], output_names=["waveform"], dynamic_axes=axes, opset_version=17, dynamo=False)
    (folder / "config.json").write_text(config.to_json_string())
    (folder / "vocab.json").write_text(json.dumps({letter: index for index, letter in enumerate(LETTERS)}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_blank": True, "normalize": True, "phonemize": False, "is_uroman": False}))


main(Path(sys.argv[1]))
