"""Writes a decoder of SmolLM2-135M's shape with random weights, for speed alone.

    python bench/make-decoder.py .data/bench/smollm2-shape      (packages of models/training/requirements.txt)
    python bench/make-decoder.py .data/bench/smollm2-half --half    (in half precision, for a GPU)
    python bench/make-decoder.py .data/bench/smollm2-growing --growing    (with a cache that grows by concatenation)
    python bench/make-decoder.py .data/bench/vision-shape --images    (with the image encoder of SigLIP base; torch and transformers)

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
IMAGE, PATCH = 224, 16
CONFIG = {
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD,
}


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


def add_images(folder: Path, table: np.ndarray) -> None:
    """Write the graphs of images and of tokens, and the files of models/tiny-vlm for these shapes."""
    import torch
    from transformers import SiglipVisionConfig, SiglipVisionModel

    tower = SiglipVisionConfig(image_size=IMAGE, patch_size=PATCH, vision_use_head=False)

    class Encoder(torch.nn.Module):
        """pixel_values [n, 3, 224, 224] -> image_features [n, 196, width]."""

        def __init__(self) -> None:
            super().__init__()
            self.tower = SiglipVisionModel(tower)
            self.project = torch.nn.Linear(tower.hidden_size, WIDTH)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.project(self.tower(pixel_values).last_hidden_state)

    rows = {0: "num_images"}
    torch.manual_seed(0)
    torch.onnx.export(
        Encoder().eval(), (torch.randn(2, 3, IMAGE, IMAGE),), str(folder / "onnx/vision_encoder.onnx"), dynamo=False, opset_version=17,
        input_names=["pixel_values"], output_names=["image_features"], dynamic_axes={"pixel_values": rows, "image_features": rows})
    shape = ["batch_size", "sequence_length"]
    tokens = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, shape)
    embeds = onnx.helper.make_tensor_value_info("inputs_embeds", onnx.TensorProto.FLOAT, [*shape, WIDTH])
    gather = onnx.helper.make_node("Gather", ["embed_tokens", "input_ids"], ["inputs_embeds"])
    graph = onnx.helper.make_graph([gather], "embed_tokens", [tokens], [embeds], [onnx.numpy_helper.from_array(table, "embed_tokens")])
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), folder / "onnx/embed_tokens.onnx")
    source, pinpoints = ROOT / "models/tiny-vlm", {"image_grid_pinpoints": [[IMAGE, IMAGE]]}
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(source / name, folder)
    config = json.loads((source / "config.json").read_text()) | pinpoints
    config["text_config"] |= {**CONFIG, "hidden_size": WIDTH, "intermediate_size": INNER}
    config["vision_config"] |= {"image_size": IMAGE, "patch_size": PATCH}
    (folder / "config.json").write_text(json.dumps(config))
    processor = json.loads((source / "preprocessor_config.json").read_text()) | pinpoints
    (folder / "preprocessor_config.json").write_text(json.dumps(processor | {"size": {"height": IMAGE, "width": IMAGE}}))


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
    model = llama_graph(LlamaShape(LAYERS, HEADS, KV_HEADS, HEAD, POSITIONS, 10000.0, 1e-5), weights, growing="--growing" in options, embedded="--images" in options)
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    if "--half" in options:
        halve(model)
    if "--images" in options:
        onnx.save(model, folder / "onnx/decoder_model_merged.onnx")
        return add_images(folder, weights["model.embed_tokens.weight"])
    onnx.save(model, folder / "onnx" / ("model_fp16.onnx" if "--half" in options else "model.onnx"))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(ROOT / "models/tiny-chat" / name, folder)
    (folder / "config.json").write_text(json.dumps(CONFIG))


main(Path(sys.argv[1]), *sys.argv[2:])
