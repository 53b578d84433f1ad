"""Checkpoint to the committed folder: the in-place graph by default, the growing one beside it."""

import json
import shutil

import numpy as np

from ..common.errors import refuse
from ..common.layout import added_tokens_decoder, special_tokens_map, write_bytes, write_json, write_manifest
from ..common.llama_graph import LlamaShape, Weights, llama_graph
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..common.storage import shrink
from ..common.vocabulary_file import load_tokenizer
from .model import Shape
from .render import CHAT_TEMPLATE, END, START, STOP

NAME = "tiny-chat"
IN_PLACE = "onnx/model_quantized.onnx"
GROWING = "growing/onnx/model_quantized.onnx"


def hub_weights(state: dict[str, object]) -> Weights:
    """The checkpoint's tensors under the names of `LlamaForCausalLM`."""
    return {f"model.{name}": np.asarray(tensor, dtype=np.float32) for name, tensor in state.items()}


def _config(s: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": s.width, "intermediate_size": s.inner, "num_hidden_layers": s.layers,
        "num_attention_heads": s.heads, "num_key_value_heads": s.kv_heads, "head_dim": s.head,
        "vocab_size": s.vocabulary, "max_position_embeddings": s.positions, "rms_norm_eps": s.epsilon,
        "rope_theta": s.theta, "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "float32",
    }


def export() -> None:
    """Write models/tiny-chat from the newest checkpoint."""
    work, folder = work_dir(NAME), model_dir(NAME)
    tokenizer = load_tokenizer(work / "tokenizer.json")
    state = read_checkpoint(work / "checkpoint.pt")["model"]
    shape = Shape(vocabulary=tokenizer.get_vocab_size())
    if state.get("embed_tokens.weight") is None or state["embed_tokens.weight"].shape != (shape.vocabulary, shape.width):
        refuse(f"{work / 'checkpoint.pt'} does not have the shape of tiny-chat.")
    weights = hub_weights(state)
    graph_shape = LlamaShape(shape.layers, shape.heads, shape.kv_heads, shape.head, shape.positions, shape.theta, shape.epsilon)
    for path, growing in ((IN_PLACE, False), (GROWING, True)):
        write_bytes(folder / path, shrink(llama_graph(graph_shape, weights, growing), "int8").SerializeToString())
    _write_texts(shape)
    write_manifest(NAME)
    print(f"wrote {folder}")


def _write_texts(shape: Shape) -> None:
    work, folder = work_dir(NAME), model_dir(NAME)
    tokenizer_json = json.loads((work / "tokenizer.json").read_text())
    marks = {"bos_token": START, "eos_token": STOP, "pad_token": END, "unk_token": END}
    texts = {
        "config.json": _config(shape),
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 0, "do_sample": False, "max_new_tokens": 128},
        "special_tokens_map.json": special_tokens_map(marks),
        "tokenizer_config.json": {
            "tokenizer_class": "GPT2Tokenizer", **marks, "add_prefix_space": False, "clean_up_tokenization_spaces": False,
            "model_max_length": shape.positions, "added_tokens_decoder": added_tokens_decoder(tokenizer_json), "chat_template": CHAT_TEMPLATE,
        },
    }
    # The growing edition is a complete model folder, so that any reader of the hub's layout opens it as it is.
    for target in (folder, folder / "growing"):
        for name, data in texts.items():
            write_json(target / name, data)
        shutil.copy(work / "tokenizer.json", target / "tokenizer.json")
