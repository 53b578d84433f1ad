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
from .code import CHANNELS, CLEAR, INNER, SIDE, PictureCode
from .model import LENGTH, SCHEDULER, WIDTH, LouderUnet, Networks
from .pictures import SIZE
from .train import NAME, load_tokenizer

LOUDER = 1.6  # so that half of the noise, with which variations begin, leaves neighbouring colours apart


class TextForm(nn.Module):
    """input_ids -> last_hidden_state, pooler_output."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        out = self.model(input_ids=input_ids)
        return out.last_hidden_state, out.pooler_output


class CodeForm(nn.Module):
    """One direction of the picture code, louder than in training."""

    def __init__(self, code: PictureCode, encode: bool) -> None:
        super().__init__()
        self.code = code
        self.encode = encode

    def forward(self, x: Tensor) -> Tensor:
        if not self.encode:
            return self.code.decode(x / LOUDER)
        mean = self.code.read(x) * LOUDER
        return torch.cat([mean, torch.full_like(mean, CLEAR)], 1)


def _write(form: nn.Module, example: tuple[Tensor, ...], path: Path, inputs: list[str], outputs: list[str], axes: dict[str, dict[int, str]], mode: str) -> None:
    scratch = work_dir(NAME) / "export.onnx"
    torch.onnx.export(form.eval(), example, str(scratch), dynamo=False, opset_version=17, input_names=inputs, output_names=outputs, dynamic_axes=axes)
    write_bytes(path, shrink(onnx.load(scratch), mode).SerializeToString())


def _graphs(folder: Path, networks: Networks) -> None:
    rows = {0: "batch_size"}
    _write(TextForm(networks.text), (torch.ones(2, LENGTH, dtype=torch.long),), folder / "text_encoder" / "model.onnx", ["input_ids"],
           ["last_hidden_state", "pooler_output"], {"input_ids": rows, "last_hidden_state": rows, "pooler_output": rows}, "fp16")
    _write(LouderUnet(networks.unet, LOUDER), (torch.randn(2, CHANNELS, SIDE, SIDE), torch.tensor(500), torch.randn(2, LENGTH, WIDTH)), folder / "unet" / "model.onnx",
           ["sample", "timestep", "encoder_hidden_states"], ["out_sample"], {"sample": rows, "encoder_hidden_states": rows, "out_sample": rows}, "int8")
    sides = {0: "batch_size", 2: "height", 3: "width"}
    _write(CodeForm(networks.code, True), (torch.randn(1, 3, SIZE, SIZE),), folder / "vae_encoder" / "model.onnx", ["sample"], ["latent_parameters"],
           {"sample": sides, "latent_parameters": sides}, "fp16")
    _write(CodeForm(networks.code, False), (torch.randn(1, CHANNELS, SIDE, SIDE),), folder / "vae_decoder" / "model.onnx", ["latent_sample"], ["sample"],
           {"latent_sample": sides, "sample": sides}, "fp16")


def _texts(folder: Path, networks: Networks) -> None:
    networks.text.config.save_pretrained(folder / "text_encoder")
    write_json(folder / "unet" / "config.json", {k: v for k, v in dict(networks.unet.config).items() if not k.startswith("_")} | {"_class_name": "UNet2DConditionModel"})
    vae = {"_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": CHANNELS, "sample_size": SIZE, "scaling_factor": 1.0,
           "block_out_channels": [INNER] * 4}
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
    tokenizer = load_tokenizer()
    state, networks = read_checkpoint(work_dir(NAME) / "checkpoint.pt"), Networks(tokenizer)
    try:
        networks.load_state_dict(state["average"])
    except (KeyError, RuntimeError):
        refuse(f"{work_dir(NAME) / 'checkpoint.pt'} does not have the shape of tiny-sd.")
    networks.text.config._attn_implementation = "eager"
    folder = model_dir(NAME)
    _graphs(folder, networks.eval())
    _texts(folder, networks)
    write_manifest(NAME)
    print(f"wrote {folder}")
