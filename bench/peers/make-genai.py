"""Builds a Llama of about 50 MB with random weights by onnxruntime-genai's builder, as fp32 and as int4.

    python bench/peers/make-genai.py .data/bench/genai

Needs torch, transformers and onnxruntime-genai with onnx-ir.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENIZER = Path(__file__).resolve().parents[2] / "models" / "tiny-chat"
CONFIG = LlamaConfig(
    vocab_size=4096,
    hidden_size=384,
    intermediate_size=1024,
    num_hidden_layers=8,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=64,
    max_position_embeddings=8192,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=False,
)


def main(folder: Path) -> None:
    torch.manual_seed(0)
    source = folder / "source"
    LlamaForCausalLM(CONFIG).save_pretrained(source)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, source)
    for precision in ("fp32", "int4"):
        builder = ["-m", "onnxruntime_genai.models.builder", "-e", "cpu", "-p", precision]
        paths = ["-i", source, "-o", folder / precision, "-c", folder / "cache"]
        subprocess.run([sys.executable, *builder, *paths], check=True)


main(Path(sys.argv[1]))
