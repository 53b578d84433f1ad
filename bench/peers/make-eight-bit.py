"""Writes the decoder of bench/make-decoder.py with weights of eight bits, as ONNX and as GGUF.

    python bench/peers/make-eight-bit.py <folder with onnx/model.onnx> <new folder>

Both hold the same numbers in blocks of 32 with a scale each: MatMulNBits there, Q8_0 here. The words of the
GGUF are placeholders, for the bench speaks in token ids. Needs numpy, onnx, onnxruntime and gguf.
"""

import json
import shutil
import sys
from pathlib import Path

import gguf
import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

BLOCK = 32
LLAMA_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_onnx(model: onnx.ModelProto, table: np.ndarray, file: Path) -> None:
    """Every matrix in eight bits, the last one too; the first one stays, for single rows are read from it."""
    nodes = [node for node in model.graph.node if node.output[0] != "head.matrix"]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(table.T), "head.matrix"))
    quantizer = MatMulNBitsQuantizer(model, bits=8, block_size=BLOCK, is_symmetric=True, accuracy_level=4)
    quantizer.process()
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(quantizer.model.model, file)


def write_gguf(weights: dict[str, np.ndarray], config: dict[str, int], file: Path) -> None:
    """The layout of llama.cpp, which pairs neighbouring numbers of a head where ONNX pairs its halves."""
    table = weights["embed_tokens"]
    heads, kv_heads = weights["model.layers.0.self_attn.q_proj.matrix"].shape[1] // config["head_dim"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(table.shape[1])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(weights["model.layers.0.mlp.up_proj.matrix"].shape[1])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(table.shape[0])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    add_placeholder_words(writer, table.shape[0])

    def add(name: str, matrix: np.ndarray) -> None:
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(matrix), kind), raw_dtype=kind)

    add("token_embd.weight", table)
    writer.add_tensor("output_norm.weight", weights["model.norm.gain"])
    for layer in range(config["num_hidden_layers"]):
        at, to = f"model.layers.{layer}.", f"blk.{layer}."
        writer.add_tensor(f"{to}attn_norm.weight", weights[f"{at}input_layernorm.gain"])
        writer.add_tensor(f"{to}ffn_norm.weight", weights[f"{at}post_attention_layernorm.gain"])
        for name, llama_name in LLAMA_NAMES.items():
            matrix = weights[f"{at}{name}.matrix"].T
            if llama_name in ("attn_q", "attn_k"):
                count = heads if llama_name == "attn_q" else kv_heads
                matrix = matrix.reshape(count, 2, -1, matrix.shape[1]).swapaxes(1, 2).reshape(matrix.shape)
            add(f"{to}{llama_name}.weight", matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_placeholder_words(writer: gguf.GGUFWriter, count: int) -> None:
    """Three marks, all bytes, and words that mean nothing."""
    marks, single = ["<unk>", "<s>", "</s>"], [f"<0x{byte:02X}>" for byte in range(256)]
    words = [f"word{at}" for at in range(len(marks) + len(single), count)]
    kinds = [gguf.TokenType.UNKNOWN, *[gguf.TokenType.CONTROL] * 2, *[gguf.TokenType.BYTE] * 256]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*marks, *single, *words])
    writer.add_token_scores([-float(at) for at in range(count)])
    writer.add_token_types([*kinds, *[gguf.TokenType.NORMAL] * len(words)])
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def main(source: Path, target: Path) -> None:
    model = onnx.load(source / "onnx/model.onnx")
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(source / name, target)
    write_gguf(weights, json.loads((source / "config.json").read_text()), target / "model-q8_0.gguf")
    write_onnx(model, weights["embed_tokens"], target / "onnx/model.onnx")


main(Path(sys.argv[1]), Path(sys.argv[2]))
