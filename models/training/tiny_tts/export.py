"""A checkpoint to the layout of a Piper voice that reads letters."""

import math

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from ..common.errors import refuse
from ..common.layout import write_bytes, write_json, write_manifest
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..common.storage import shrink
from ..tiny_whisper.voices import RATE
from . import NAME
from .letters import IDS, token_ids
from .model import Voices
from .reference import VOICES
from .vocoder import BINS, SIZE, Vocoder

GRAPH = "onnx/model_quantized.onnx"
NOISE_SCALE, LENGTH_SCALE = 1.0, 1.0


class ProductVocoder(Vocoder):
    """Fourier transforms around the middle of a frame, as products with two symmetric matrices that are computed when the graph is loaded.

    The cosines take what is even around the middle, the sines what is odd."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bins", torch.arange(BINS).float())

    def _angles(self) -> Tensor:
        turns = self.bins[:, None] * self.bins[None, :] / SIZE
        return (turns - turns.floor()) * (2 * math.pi)

    def transform(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        angles, middle = self._angles(), SIZE // 2
        after = torch.cat([frames[..., middle:], frames[..., :1]], -1)
        before = torch.nn.functional.pad(frames[..., 1:middle].flip(-1), (1, 1))
        return (after + before) @ angles.cos(), (before - after) @ angles.sin()

    def back(self, real: Tensor, imaginary: Tensor) -> Tensor:
        angles = self._angles()
        weight = torch.where((self.bins == 0) | (self.bins == BINS - 1), 1.0, 2.0) / SIZE
        even, odd = (real * weight) @ angles.cos(), (imaginary * weight) @ angles.sin()
        return torch.cat([(even + odd)[..., 1:].flip(-1), (even - odd)[..., :-1]], -1)


class Piper(torch.nn.Module):
    """Inputs and output as Piper names them. Every second id is padding."""

    def __init__(self, voices: Voices) -> None:
        super().__init__()
        self.voices = voices
        self.voices.vocoder = ProductVocoder()

    def forward(self, input: Tensor, input_lengths: Tensor, scales: Tensor, sid: Tensor) -> Tensor:
        ids = input[:, : input_lengths[0]][:, ::2]
        wave = self.voices(ids, sid, scales[1], scales[0])
        return wave[:, None, None].clamp(-1, 1)


def piper_ids(text: str) -> list[int]:
    """Ids with the padding between them, as servers of Piper voices write them."""
    ids = token_ids(text)
    return [part for token in ids[:-1] for part in (token, IDS["_"])] + ids[-1:]


def _fold_transposes(model: onnx.ModelProto) -> None:
    """Weights as they are multiplied, instead of as PyTorch keeps them."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in [node for node in model.graph.node if node.op_type == "Transpose" and node.input[0] in held]:
        turned = numpy_helper.to_array(held[node.input[0]]).transpose(node.attribute[0].ints)
        model.graph.initializer.append(numpy_helper.from_array(turned.copy(), node.output[0]))
        model.graph.node.remove(node)
    used = {name for node in model.graph.node for name in node.input}
    for tensor in [tensor for tensor in model.graph.initializer if tensor.name not in used]:
        model.graph.initializer.remove(tensor)


def _graph(voices: Voices) -> onnx.ModelProto:
    ids = torch.tensor([piper_ids("The house is red.")])
    inputs = {"input": ids, "input_lengths": torch.tensor([ids.shape[1]]), "scales": torch.tensor([NOISE_SCALE, LENGTH_SCALE, 0.0]), "sid": torch.tensor([0])}
    scratch = work_dir(NAME) / "export.onnx"
    torch.onnx.export(Piper(voices).eval(), tuple(inputs.values()), str(scratch), dynamo=False, opset_version=17, do_constant_folding=False, input_names=list(inputs),
                      output_names=["output"], dynamic_axes={"input": {0: "batch_size", 1: "phonemes"}, "input_lengths": {0: "batch_size"}, "sid": {0: "batch_size"}, "output": {0: "batch_size", 3: "time"}})
    model = onnx.load(scratch)
    _fold_transposes(model)
    return model


def export() -> None:
    """Write models/tiny-tts from the newest checkpoint."""
    voices, path = Voices(), work_dir(NAME) / "checkpoint.pt"
    try:
        voices.load_state_dict(read_checkpoint(path)["model"])
    except RuntimeError:
        refuse(f"{path} does not have the shape of tiny-tts.")
    folder = model_dir(NAME)
    write_bytes(folder / GRAPH, shrink(_graph(voices), "int8").SerializeToString())
    write_json(folder / f"{GRAPH}.json", {
        "audio": {"sample_rate": RATE, "quality": "x_low"}, "phoneme_type": "text", "num_symbols": len(IDS), "phoneme_id_map": {symbol: [index] for symbol, index in IDS.items()},
        "num_speakers": len(VOICES), "speaker_id_map": {name: index for index, name in enumerate(VOICES)},
        "inference": {"noise_scale": NOISE_SCALE, "length_scale": LENGTH_SCALE, "noise_w": 0.0},
    })
    write_manifest(NAME)
    print(f"wrote {folder}")
