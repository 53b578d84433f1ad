"""Writes a decoder of SmolLM2-135M's shape with random weights, for speed alone.

    python bench/make-decoder.py .data/bench/smollm2-shape      (packages of models/training/requirements.txt)
    python bench/make-decoder.py .data/bench/smollm2-half --half    (in half precision, for a GPU)
    python bench/make-decoder.py .data/bench/smollm2-growing --growing    (with a cache that grows by concatenation)

Speed does not depend on the values. The tokenizer is that of models/tiny-chat.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from models.training.common.llama_graph import LlamaShape, llama_graph  # noqa: E402

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, HEAD, VOCABULARY, POSITIONS = 576, 1536, 30, 9, 3, 64, 49152, 2048


def halve(model: onnx.ModelProto) -> None:
    """Make everything that is 32-bit float 16-bit float."""
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16


def main(folder: Path, *options: str) -> None:
    random = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 0.02).astype(np.float32)

    weights = {"model.embed_tokens.weight": matrix(VOCABULARY, WIDTH), "model.norm.weight": np.ones(WIDTH, np.float32)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        sizes = {
            "self_attn.q_proj": (HEADS * HEAD, WIDTH),
            "self_attn.k_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.v_proj": (KV_HEADS * HEAD, WIDTH),
            "self_attn.o_proj": (WIDTH, HEADS * HEAD),
            "mlp.gate_proj": (INNER, WIDTH),
            "mlp.up_proj": (INNER, WIDTH),
            "mlp.down_proj": (WIDTH, INNER),
        }
        weights |= {f"{at}{name}.weight": matrix(*size) for name, size in sizes.items()}
        weights |= {f"{at}{name}.weight": np.ones(WIDTH, np.float32) for name in ("input_layernorm", "post_attention_layernorm")}
    model = llama_graph(LlamaShape(LAYERS, HEADS, KV_HEADS, HEAD, POSITIONS, 10000.0, 1e-5), weights, growing="--growing" in options)
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    if "--half" in options:
        halve(model)
    onnx.save(model, folder / "onnx" / ("model_fp16.onnx" if "--half" in options else "model.onnx"))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(ROOT / "models/tiny-chat" / name, folder)
    config = {
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
    }
    (folder / "config.json").write_text(json.dumps(config))


main(Path(sys.argv[1]), *sys.argv[2:])
