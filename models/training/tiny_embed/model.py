"""The encoder and its sentence vectors."""

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertConfig, BertModel

LONGEST = 256


def config(vocabulary: int) -> BertConfig:
    """Four layers of 128."""
    return BertConfig(
        vocab_size=vocabulary, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512, max_position_embeddings=LONGEST,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=0, architectures=["BertModel"], attn_implementation="sdpa",
    )


def build(vocabulary: int) -> BertModel:
    """A fresh encoder."""
    return BertModel(config(vocabulary), add_pooling_layer=False)


def encode(model: BertModel, tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    """Mean of the last hidden states, at length one."""
    rows = tokenizer.encode_batch(texts)
    longest = min(LONGEST, max(len(row.ids) for row in rows))
    ids = torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        kept = row.ids[:longest]
        ids[index, : len(kept)] = torch.tensor(kept)
    mask = (ids > 0).long()
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    share = mask[..., None].float()
    return F.normalize((hidden * share).sum(1) / share.sum(1), dim=-1)
