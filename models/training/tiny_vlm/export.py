"""Checkpoints to the hub's layout of LLaVA-OneVision: vision_encoder, embed_tokens and a decoder that reads embeddings."""

import json
import shutil
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from ..common.errors import refuse
from ..common.layout import added_tokens_decoder, special_tokens_map, write_bytes, write_json, write_manifest
from ..common.llama_graph import LlamaShape, llama_graph
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..common.storage import shrink
from ..common.vocabulary_file import load_tokenizer
from ..tiny_chat.export import hub_weights
from ..tiny_chat.model import Shape
from . import NAME, train_language, train_vision
from .code import TOKENS
from .drawing import SIDE
from .language import Language
from .render import ASSISTANT, CHAT_TEMPLATE, END, IMAGE, USER
from .vision import Vision

VISION, EMBED, DECODER = (f"onnx/{stem}_quantized.onnx" for stem in ("vision_encoder", "embed_tokens", "decoder_model_merged"))


class Eyes(nn.Module):
    """pixel_values [n, 3, 64, 64] -> image_features [n, 9, width]."""

    def __init__(self, vision: Vision, language: Language) -> None:
        super().__init__()
        self.vision = vision
        self.matrix = nn.Parameter(language.see.matrix(language.decoder.embed_tokens.weight).detach())
        self.bias = nn.Parameter((language.see.project.bias + language.see.place).detach())

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.vision(pixel_values) @ self.matrix + self.bias


def _vision_graph(eyes: Eyes) -> onnx.ModelProto:
    scratch, rows = work_dir(NAME) / "export.onnx", {0: "num_images"}
    torch.onnx.export(eyes.eval(), (torch.randn(2, 3, SIDE, SIDE),), str(scratch), dynamo=False, opset_version=17, input_names=["pixel_values"], output_names=["image_features"],
                      dynamic_axes={"pixel_values": rows, "image_features": rows})
    return onnx.load(scratch)


def _embed_graph(table: np.ndarray) -> onnx.ModelProto:
    shape = ["batch_size", "sequence_length"]
    graph = helper.make_graph(
        [helper.make_node("Gather", ["embed_tokens", "input_ids"], ["inputs_embeds"])], "embed_tokens", [helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("inputs_embeds", TensorProto.FLOAT, [*shape, table.shape[1]])], [numpy_helper.from_array(table, "embed_tokens")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="millrace")


def _config(s: Shape, image_id: int, marks: dict[str, int]) -> dict[str, Any]:
    text = {
        "model_type": "llama", "hidden_act": "silu", "hidden_size": s.width, "intermediate_size": s.inner, "num_hidden_layers": s.layers, "num_attention_heads": s.heads,
        "num_key_value_heads": s.kv_heads, "head_dim": s.head, "vocab_size": s.vocabulary, "max_position_embeddings": s.positions, "rms_norm_eps": s.epsilon, "rope_theta": s.theta,
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False, **marks,
    }
    return {
        "architectures": ["LlavaOnevisionForConditionalGeneration"], "model_type": "llava_onevision", "image_token_index": image_id, "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model", "image_size": SIDE, "patch_size": SIDE // TOKENS, "num_channels": 3},
        "vision_feature_select_strategy": "full", "vision_feature_layer": -1, "image_grid_pinpoints": [[SIDE, SIDE]], "tie_word_embeddings": True, "torch_dtype": "float32",
    }


def _write_texts(shape: Shape, token_id: Any) -> None:
    work, folder = work_dir(NAME), model_dir(NAME)
    marks = {"bos_token": USER, "eos_token": END, "pad_token": END, "unk_token": END}
    ids = {"bos_token_id": token_id(USER), "eos_token_id": token_id(END), "pad_token_id": token_id(END)}
    write_json(folder / "config.json", _config(shape, token_id(IMAGE), ids))
    write_json(folder / "generation_config.json", {**ids, "eos_token_id": [token_id(END), token_id(USER), token_id(ASSISTANT)], "do_sample": False, "max_new_tokens": 64})
    write_json(folder / "preprocessor_config.json", {
        "image_processor_type": "LlavaOnevisionImageProcessor", "do_convert_rgb": True, "do_resize": True, "size": {"height": SIDE, "width": SIDE}, "resample": 3, "do_rescale": True,
        "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "image_grid_pinpoints": [[SIDE, SIDE]],
    })
    write_json(folder / "special_tokens_map.json", special_tokens_map(marks))
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", **marks, "add_prefix_space": False, "clean_up_tokenization_spaces": False, "model_max_length": shape.positions,
        "added_tokens_decoder": added_tokens_decoder(json.loads((work / "tokenizer.json").read_text())), "chat_template": CHAT_TEMPLATE,
    })
    shutil.copy(work / "tokenizer.json", folder / "tokenizer.json")


def export() -> None:
    """Write models/tiny-vlm from the newest checkpoints of both halves."""
    work, folder = work_dir(NAME), model_dir(NAME)
    tokenizer = load_tokenizer(work / "tokenizer.json")
    vision, language = Vision(), Language(tokenizer)
    for model, file in ((vision, train_vision.FILE), (language, train_language.FILE)):
        try:
            model.load_state_dict(read_checkpoint(work / file)["model"])
        except RuntimeError:
            refuse(f"{work / file} does not have the shape of tiny-vlm.")
    shape = language.decoder.shape
    table = language.decoder.embed_tokens.weight.detach().numpy()
    sizes = LlamaShape(shape.layers, shape.heads, shape.kv_heads, shape.head, shape.positions, shape.theta, shape.epsilon)
    graphs = {
        VISION: _vision_graph(Eyes(vision, language)), EMBED: _embed_graph(table),
        DECODER: llama_graph(sizes, hub_weights(language.decoder.state_dict()), growing=False, embedded=True),
    }
    for path, graph in graphs.items():
        write_bytes(folder / path, shrink(graph, "int8").SerializeToString())
    _write_texts(shape, tokenizer.token_to_id)
    write_manifest(NAME)
    print(f"wrote {folder}")
