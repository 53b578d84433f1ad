"""BERT encoders and classifiers as ONNX with the hub's input names."""

from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from .storage import shrink

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


class BertForm(nn.Module):
    """Tokens to the first output of the model: hidden states or logits."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        # An explicit bias keeps the graph free of the library's own mask building, which tracing would freeze.
        bias = torch.where(attention_mask[:, None, None] > 0, torch.tensor(0.0), torch.tensor(-1e9))
        bias = bias.expand(-1, 1, input_ids.shape[1], -1)
        return self.model(input_ids=input_ids, attention_mask=bias, token_type_ids=token_type_ids)[0]


def trace_bert(model: Any, path: Path, output: str) -> None:
    """Write the graph with 32-bit weights to `path`."""
    model.config._attn_implementation = "eager"
    axes: dict[str, dict[int, str]] = {name: {0: "batch_size", 1: "sequence_length"} for name in INPUTS}
    axes[output] = {0: "batch_size"} if output == "logits" else {0: "batch_size", 1: "sequence_length"}
    ones = torch.ones(2, 4, dtype=torch.long)
    example = (torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]]), ones, torch.zeros(2, 4, dtype=torch.long))
    torch.onnx.export(BertForm(model).eval(), example, str(path), dynamo=False, opset_version=17, input_names=INPUTS, output_names=[output], dynamic_axes=axes)


def export_bert(model: Any, path: Path, output: str, mode: str) -> bytes:
    """Trace, store the weights as `mode` and return the file's bytes; `path` is scratch space."""
    trace_bert(model, path, output)
    return shrink(onnx.load(path), mode).SerializeToString()
