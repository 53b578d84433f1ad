"""Checkpoint to the layout of sentence-transformers with an ONNX file."""

import json
import shutil

from ..common.bert_export import export_bert
from ..common.errors import refuse
from ..common.layout import added_tokens_decoder, special_tokens_map, write_bytes, write_json, write_manifest
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..common.wordpiece import MARKS
from .model import LONGEST, build
from .train import NAME, load_tokenizer

FILE = "onnx/model.onnx"


def bert_texts(name: str, source: str) -> None:
    """Tokenizer and its configuration, the same for encoder and reranker."""
    folder = model_dir(name)
    path = work_dir(source) / "tokenizer.json"
    shutil.copy(path, folder / "tokenizer.json")
    write_json(folder / "special_tokens_map.json", special_tokens_map(MARKS))
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": LONGEST, "clean_up_tokenization_spaces": True,
        "strip_accents": None, "tokenize_chinese_chars": True, **MARKS, "added_tokens_decoder": added_tokens_decoder(json.loads(path.read_text())),
    })


def export() -> None:
    """Write models/tiny-embed from the newest checkpoint."""
    tokenizer, folder = load_tokenizer(), model_dir(NAME)
    model = build(tokenizer.get_vocab_size())
    state = read_checkpoint(work_dir(NAME) / "checkpoint.pt")["model"]
    try:
        model.load_state_dict(state)
    except RuntimeError:
        refuse(f"{work_dir(NAME) / 'checkpoint.pt'} does not have the shape of tiny-embed.")
    write_bytes(folder / FILE, export_bert(model.eval(), work_dir(NAME) / "export.onnx", "last_hidden_state", "fp16"))
    config = json.loads(model.config.to_json_string(use_diff=False))
    kept = ("architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
            "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id", "hidden_dropout_prob", "attention_probs_dropout_prob")
    write_json(folder / "config.json", {key: config[key] for key in kept})
    write_json(folder / "modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ])
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": LONGEST, "do_lower_case": False})
    write_json(folder / "1_Pooling" / "config.json", {
        "word_embedding_dimension": 128, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
    })
    bert_texts(NAME, NAME)
    write_manifest(NAME)
    print(f"wrote {folder}")
