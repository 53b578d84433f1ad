"""A checkpoint to the layout of a Piper voice that reads letters."""

import math

import onnx
import torch
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
    """Fourier transforms as products with matrices that the graph computes when it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bins", torch.arange(BINS).float())
        self.register_buffer("times", torch.arange(SIZE).float())

    def _angles(self) -> Tensor:
        turns = self.bins[:, None] * self.times[None, :] / SIZE
        return (turns - turns.floor()) * (2 * math.pi)

    def transform(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        angles = self._angles().T
        return frames @ angles.cos(), frames @ -angles.sin()

    def back(self, real: Tensor, imaginary: Tensor) -> Tensor:
        angles = self._angles()
        weight = torch.where((self.bins == 0) | (self.bins == BINS - 1), 1.0, 2.0)[:, None] / SIZE
        return real @ (angles.cos() * weight) - imaginary @ (angles.sin() * weight)


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


def _graph(voices: Voices) -> onnx.ModelProto:
    ids = torch.tensor([piper_ids("The house is red.")])
    inputs = {"input": ids, "input_lengths": torch.tensor([ids.shape[1]]), "scales": torch.tensor([NOISE_SCALE, LENGTH_SCALE, 0.0]), "sid": torch.tensor([0])}
    scratch = work_dir(NAME) / "export.onnx"
    torch.onnx.export(Piper(voices).eval(), tuple(inputs.values()), str(scratch), dynamo=False, opset_version=17, do_constant_folding=False, input_names=list(inputs),
                      output_names=["output"], dynamic_axes={"input": {0: "batch_size", 1: "phonemes"}, "input_lengths": {0: "batch_size"}, "sid": {0: "batch_size"}, "output": {0: "batch_size", 3: "time"}})
    return onnx.load(scratch)


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
