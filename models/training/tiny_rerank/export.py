"""Checkpoint to the layout of the hub's cross-encoders."""

import json

from ..common.bert_export import export_bert
from ..common.errors import refuse
from ..common.layout import write_bytes, write_json, write_manifest
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..tiny_embed.export import bert_texts
from ..tiny_embed.train import NAME as ENCODER
from ..tiny_embed.train import load_tokenizer
from .train import NAME, build

FILE = "onnx/model.onnx"


def export() -> None:
    """Write models/tiny-rerank from the newest checkpoint."""
    tokenizer, folder = load_tokenizer(), model_dir(NAME)
    model = build(tokenizer.get_vocab_size())
    state = read_checkpoint(work_dir(NAME) / "checkpoint.pt")["model"]
    try:
        model.load_state_dict(state)
    except RuntimeError:
        refuse(f"{work_dir(NAME) / 'checkpoint.pt'} does not have the shape of tiny-rerank.")
    write_bytes(folder / FILE, export_bert(model.eval(), work_dir(NAME) / "export.onnx", "logits", "fp16"))
    config = json.loads(model.config.to_json_string(use_diff=False))
    kept = ("architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
            "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id", "hidden_dropout_prob", "attention_probs_dropout_prob")
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}
    write_json(folder / "config.json", {key: config[key] for key in kept} | labels)
    bert_texts(NAME, ENCODER)
    write_manifest(NAME)
    print(f"wrote {folder}")
