"""Checkpoint to the layout of the hub's sequence classifiers."""

import json
import shutil

from ..common.bert_export import export_bert
from ..common.errors import refuse
from ..common.layout import write_bytes, write_json, write_manifest
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..tiny_embed.train import NAME as ENCODER
from .train import NAME, build, load_tokenizer

FILE = "onnx/model.onnx"


def export() -> None:
    """Write models/tiny-moderation from the newest checkpoint."""
    state = read_checkpoint(work_dir(NAME) / "checkpoint.pt")["model"]
    model, folder = build(load_tokenizer().get_vocab_size()), model_dir(NAME)
    try:
        model.load_state_dict(state)
    except RuntimeError:
        refuse(f"{work_dir(NAME) / 'checkpoint.pt'} does not have the shape of tiny-moderation.")
    write_bytes(folder / FILE, export_bert(model.eval(), work_dir(NAME) / "export.onnx", "logits", "int8"))
    config = json.loads(model.config.to_json_string(use_diff=False))
    kept = ("architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
            "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id", "hidden_dropout_prob", "attention_probs_dropout_prob",
            "problem_type", "id2label", "label2id")
    write_json(folder / "config.json", {key: config[key] for key in kept})
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(model_dir(ENCODER) / file, folder / file)
    write_manifest(NAME)
    print(f"wrote {folder}")
