"""Trains steps of a LoRA adapter with torch and PEFT: one time a line, in seconds.

    python bench/peers/peft-steps.py <folder of bench/make-decoder.py> <rank> <texts of a step> <tokens of a text> <steps>
"""

import json
import sys
import time
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WIDTH, INNER = 576, 1536


def main(folder: str, rank: int, texts: int, length: int, steps: int) -> None:
    torch.manual_seed(0)
    settings = json.loads((Path(folder) / "config.json").read_text())
    config = LlamaConfig(**settings, hidden_size=WIDTH, intermediate_size=INNER, tie_word_embeddings=True)
    adapter = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=MODULES)
    model = get_peft_model(LlamaForCausalLM(config), adapter).train()
    optimizer = torch.optim.AdamW([tensor for tensor in model.parameters() if tensor.requires_grad], lr=1e-4)
    ids = torch.tensor([[3 + (at * 7 + text * 31) % 500 for at in range(length)] for text in range(texts)])
    for _ in range(steps):
        started = time.perf_counter()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(time.perf_counter() - started, flush=True)


main(sys.argv[1], *map(int, sys.argv[2:]))
