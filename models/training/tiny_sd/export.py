"""Checkpoint to the layout of Stable Diffusion's ONNX folders."""

import shutil
from pathlib import Path
from typing import Any

import onnx
import torch
from diffusers import DDIMScheduler
from torch import Tensor, nn

from ..common.errors import refuse
from ..common.layout import write_bytes, write_json, write_manifest
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..common.storage import shrink
from .model import LENGTH, SCHEDULER, SIDE, WIDTH, Networks
from .patches import CHANNELS, PATCH, PatchCode
from .pictures import SIZE
from .train import NAME, load_parts


class TextForm(nn.Module):
    """input_ids -> last_hidden_state, pooler_output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model(input_ids=input_ids)
        return out.last_hidden_state, out.pooler_output


class UnetForm(nn.Module):
    """sample, timestep, encoder_hidden_states -> out_sample."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor) -> Tensor:
        return self.model(sample, timestep.reshape(1).expand(sample.shape[0]), encoder_hidden_states).sample


class CodeForm(nn.Module):
    """One direction of the picture code."""

    def __init__(self, code: PatchCode, encode: bool) -> None:
        super().__init__()
        self.code = code
        self.encode = encode

    def forward(self, x: Tensor) -> Tensor:
        return self.code.encode(x) if self.encode else self.code.decode(x)


def _write(form: nn.Module, example: tuple[Tensor, ...], path: Path, inputs: list[str], outputs: list[str], axes: dict[str, dict[int, str]], mode: str) -> None:
    scratch = work_dir(NAME) / "export.onnx"
    torch.onnx.export(form.eval(), example, str(scratch), dynamo=False, opset_version=17, input_names=inputs, output_names=outputs, dynamic_axes=axes)
    write_bytes(path, shrink(onnx.load(scratch), mode).SerializeToString())


def _graphs(folder: Path, networks: Networks, code: PatchCode) -> None:
    rows = {0: "batch_size"}
    _write(TextForm(networks.text), (torch.ones(2, LENGTH, dtype=torch.long),), folder / "text_encoder" / "model.onnx", ["input_ids"],
           ["last_hidden_state", "pooler_output"], {"input_ids": rows, "last_hidden_state": rows, "pooler_output": rows}, "fp16")
    _write(UnetForm(networks.unet), (torch.randn(2, CHANNELS, SIDE, SIDE), torch.tensor(500), torch.randn(2, LENGTH, WIDTH)), folder / "unet" / "model.onnx",
           ["sample", "timestep", "encoder_hidden_states"], ["out_sample"], {"sample": rows, "encoder_hidden_states": rows, "out_sample": rows}, "int8")
    sides = {0: "batch_size", 2: "height", 3: "width"}
    _write(CodeForm(code, True), (torch.randn(1, 3, SIZE, SIZE),), folder / "vae_encoder" / "model.onnx", ["sample"], ["latent_parameters"],
           {"sample": sides, "latent_parameters": sides}, "fp16")
    _write(CodeForm(code, False), (torch.randn(1, CHANNELS, SIDE, SIDE),), folder / "vae_decoder" / "model.onnx", ["latent_sample"], ["sample"],
           {"latent_sample": sides, "sample": sides}, "fp16")


def _texts(folder: Path, networks: Networks) -> None:
    networks.text.config.save_pretrained(folder / "text_encoder")
    write_json(folder / "unet" / "config.json", {k: v for k, v in dict(networks.unet.config).items() if not k.startswith("_")} | {"_class_name": "UNet2DConditionModel"})
    vae = {"_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": CHANNELS, "sample_size": SIZE, "scaling_factor": 1.0,
           "block_out_channels": [PATCH * 2] * 4}
    for name in ("vae_encoder", "vae_decoder"):
        write_json(folder / name / "config.json", vae)
    DDIMScheduler(**SCHEDULER).save_pretrained(folder / "scheduler")
    shutil.copytree(work_dir(NAME) / "tokenizer", folder / "tokenizer", dirs_exist_ok=True)
    runtime = ["diffusers", "OnnxRuntimeModel"]
    write_json(folder / "model_index.json", {
        "_class_name": "OnnxStableDiffusionPipeline", "_diffusers_version": "0.42.1", "feature_extractor": [None, None], "safety_checker": [None, None],
        "scheduler": ["diffusers", "DDIMScheduler"], "text_encoder": runtime, "tokenizer": ["transformers", "CLIPTokenizer"], "unet": runtime,
        "vae_decoder": runtime, "vae_encoder": runtime})


def export() -> None:
    """Write models/tiny-sd from the averaged weights of the newest checkpoint."""
    tokenizer, code = load_parts()
    state, networks = read_checkpoint(work_dir(NAME) / "checkpoint.pt"), Networks(tokenizer)
    try:
        networks.load_state_dict(state["average"])
    except (KeyError, RuntimeError):
        refuse(f"{work_dir(NAME) / 'checkpoint.pt'} does not have the shape of tiny-sd.")
    networks.text.config._attn_implementation = "eager"
    folder = model_dir(NAME)
    _graphs(folder, networks.eval(), code)
    _texts(folder, networks)
    write_manifest(NAME)
    print(f"wrote {folder}")
