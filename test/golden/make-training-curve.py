"""Records the losses of torch and PEFT for test/golden/training-curve.test.ts.

    python make-training-curve.py

(torch 2.15, transformers 5.24, peft 0.21.2, onnx 1.23.2.) The model is the tiny random Llama of
test/fixtures/models/llama-in-place. The order of the examples is read from training-curve.json and kept; the
test checks that it is the one of the trainer's `batchesOf` for seed 7. The rate is the largest that a training
chooses by itself. At 0.01 rounding grows to differences of 2e-3 after 120 steps.
"""

import json
import math
from pathlib import Path

import numpy as np
import onnx
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).parent.parent / "fixtures/models/llama-in-place"
CURVE = Path(__file__).parent / "training-curve.json"
RANK, ALPHA, PEAK, BATCH = 4, 8, 0.003, 3
LENGTHS = (9, 14, 6, 21, 11, 17)
MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def base_model() -> LlamaForCausalLM:
    config = LlamaConfig(**json.loads((FOLDER / "config.json").read_text()))
    model = LlamaForCausalLM(config).float().eval()
    weights = {}
    for tensor in onnx.load(FOLDER / "onnx/model.onnx").graph.initializer:
        value = torch.from_numpy(onnx.numpy_helper.to_array(tensor).copy())
        if tensor.name == "embed_tokens":
            weights["model.embed_tokens.weight"] = value
        elif tensor.name.endswith(".gain"):
            weights[tensor.name.replace(".gain", ".weight")] = value
        elif tensor.name.endswith(".matrix"):
            weights[tensor.name.replace(".matrix", ".weight")] = value.T.contiguous()
    model.load_state_dict(weights)
    return model


def tokens(example: int) -> list[int]:
    """The test makes the same."""
    return [(7 + 13 * example + 29 * at * (at + example)) % 320 for at in range(LENGTHS[example])]


def initial(module: int, rows: int, columns: int) -> torch.Tensor:
    """The test makes the same."""
    index = np.arange(rows * columns, dtype=np.int64)
    values = ((index * 7919 + module * 104729) % 2003).astype(np.float64) / 2003 - 0.5
    return torch.from_numpy((values / 2).astype(np.float32).reshape(rows, columns))


def rate(step: int, steps: int) -> float:
    warm_up = math.ceil(steps * 0.03)
    if step < warm_up:
        return PEAK * (step + 1) / (warm_up + 1)
    return PEAK * (1 + math.cos(math.pi * (step - warm_up) / max(steps - warm_up, 1))) / 2


def main() -> None:
    order = json.loads(CURVE.read_text())["order"]
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=MODULES, lora_dropout=0)
    model = get_peft_model(base_model(), config)
    number = 0
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            parameter.data = initial(number, *parameter.shape)
            number += 1
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=PEAK, weight_decay=0)
    batches = [epoch[at : at + BATCH] for epoch in order for at in range(0, len(epoch), BATCH)]
    losses = []
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, len(batches))
        # The first third of an example is its prompt.
        total = 0
        targets = 0
        for example in batch:
            ids = torch.tensor([tokens(example)])
            labels = ids.clone()
            labels[:, : LENGTHS[example] // 3] = -100
            count = int((labels[:, 1:] != -100).sum())
            total = total + model(input_ids=ids, labels=labels).loss * count
            targets += count
        loss = total / targets
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
    curve = {"order": order, "losses": [round(loss, 6) for loss in losses]}
    CURVE.write_text(json.dumps(curve) + "\n")


main()
