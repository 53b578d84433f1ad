"""A small CLIP tokenizer: byte-level BPE with `</w>` at word ends, as vocab.json and merges.txt."""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

START, END = "<|startoftext|>", "<|endoftext|>"
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"


def _trained(lines: Iterable[str], vocabulary: int) -> list[tuple[str, str]]:
    tokenizer = Tokenizer(models.BPE(unk_token=END, end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    split = pre_tokenizers.Split(Regex(PATTERN), "removed", invert=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[], show_progress=False, initial_alphabet=alphabet, end_of_word_suffix="</w>")
    tokenizer.train_from_iterator(lines, trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(m[0], m[1]) if isinstance(m, list) else tuple(m.split(" ")) for m in merges]


def build(folder: Path, lines: Iterable[str], vocabulary: int, length: int) -> None:
    """Train and write the four files of a CLIP tokenizer."""
    merges = _trained(lines, vocabulary)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = dict.fromkeys([*alphabet, *(a + "</w>" for a in alphabet), *(a + b for a, b in merges), START, END])
    folder.mkdir(parents=True, exist_ok=True)
    marks = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    for name, data in {
        "vocab.json": {token: index for index, token in enumerate(tokens)}, "special_tokens_map.json": marks,
        "tokenizer_config.json": {"tokenizer_class": "CLIPTokenizer", "model_max_length": length, "do_lower_case": True, "add_prefix_space": False, **marks},
    }.items():
        (folder / name).write_text(json.dumps(data, ensure_ascii=False) + "\n")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
