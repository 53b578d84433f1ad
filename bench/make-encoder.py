"""Writes a bi-encoder or cross-encoder of MiniLM-L6's shape with random weights, for speed alone.

    python bench/make-encoder.py .data/bench/minilm-shape      (packages of models/training/requirements.txt)
    python bench/make-encoder.py .data/bench/minilm-rerank-shape --rerank

Speed does not depend on the values. The tokenizer is that of models/tiny-embed.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from models.training.common.bert_export import trace_bert  # noqa: E402

SHAPE = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}


def main(folder: Path, *options: str) -> None:
    torch.manual_seed(0)
    is_ranking = "--rerank" in options
    source = ROOT / "models" / ("tiny-rerank" if is_ranking else "tiny-embed")
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("onnx", "*.md", "eval.json", "manifest.json"), dirs_exist_ok=True)
    config = BertConfig(**SHAPE, num_labels=1)
    model = (BertForSequenceClassification if is_ranking else BertModel)(config).eval()
    (folder / "onnx").mkdir(exist_ok=True)
    trace_bert(model, folder / "onnx" / "model.onnx", "logits" if is_ranking else "last_hidden_state")
    for name, changes in {
        "config.json": SHAPE,
        "tokenizer_config.json": {"model_max_length": 512},
        "sentence_bert_config.json": {"max_seq_length": 512},
        "1_Pooling/config.json": {"word_embedding_dimension": SHAPE["hidden_size"]},
    }.items():
        file = folder / name
        if file.exists():
            file.write_text(json.dumps(json.loads(file.read_text()) | changes, indent=2))


main(Path(sys.argv[1]), *sys.argv[2:])
