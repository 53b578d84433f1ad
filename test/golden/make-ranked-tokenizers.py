"""Record what tokenizers of tiktoken and tekken files make of hard texts, for tokenizer-files.test.ts.

Usage, from the repository root: python test/golden/make-ranked-tokenizers.py
Needs tiktoken 0.14 and mistral-common 1.13. Their files hold tokens of bytes with ranks; patterns and special tokens are those of
the classes that read them (QWenTokenizer, ChatGLM4Tokenizer, TikTokenTokenizer of Kimi).
"""

import base64
import json
import re
import tempfile
import unicodedata
from importlib.metadata import version
from pathlib import Path

import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

FILES = Path("test/fixtures/tokenizers")
GOLDEN = Path("test/golden/ranked-tokenizers.json")
SHARED = json.loads(Path("test/golden/tokenizer-files.json").read_text())["texts"]
TEXTS = [*SHARED, "aaaaaaa baaaaab", "京都へ行くABC京", "I'LL they'Ve e\u0301", "\ufeffa\u0085b \u2028c", "100 12345", "<|im_start|>user\nhi<|im_end|>", "[INST] a [/INST]</s>"]


def printable() -> dict[str, int]:
    """The byte of each printable character of GPT-2."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return {**{chr(byte): byte for byte in own}, **{chr(256 + place): byte for place, byte in enumerate(others)}}


BYTES = printable()
words = sorted(json.loads((FILES / "gpt2-vocab.json").read_text()).items(), key=lambda entry: entry[1])
learned = [bytes(BYTES[c] for c in text) for text, _ in words if not text.startswith("<|")]
# Several pairs of tokens make up each of these; the first in a word is joined first.
tokens = list(dict.fromkeys([*(bytes([byte]) for byte in range(256)), *learned, b"aa", b"aaa", *(text.encode() for text in ("京", "都", "京都", "へ", "행", "é", "１"))]))
RANKS = {token: rank for rank, token in enumerate(tokens)}
(FILES / "ranks.tiktoken").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in RANKS.items()))

SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
GLM = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|")
KIMI = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", SPACES])
TEKKEN = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES


def listed(names: dict[int, str]) -> dict[str, object]:
    """Settings that state special tokens with their ids."""
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"added_tokens_decoder": {str(number): {"content": name, **flags} for number, name in names.items()}}


def record(pattern: str, special: dict[str, int], before: list[str], end: list[str], *, composes: bool = False) -> dict[str, object]:
    """The ids of every text and of a pair, with the tokens around them."""
    encoding = tiktoken.Encoding("miniature", pat_str=pattern, mergeable_ranks=RANKS, special_tokens=special)
    ids = lambda text: encoding.encode(unicodedata.normalize("NFC", text) if composes else text, allowed_special="all")
    first, last = ([special[name] for name in names] for names in (before, end))
    return {"ids": [first + ids(text) for text in TEXTS], "pair": first + ids(TEXTS[1]) + ids(TEXTS[15]) + last}


N = len(RANKS)
qwen = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
glm = {N + i: name for i, name in enumerate(["<|endoftext|>", "[MASK]", "[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|system|>", "<|user|>", "<|assistant|>"])}
kimi = {N: "[BOS]", N + 1: "[EOS]", N + 2: "<|im_end|>", N + 3: "<|im_user|>", N + 10: "[UNK]", N + 11: "[PAD]"}
cases = {
    "Qwen 1": ({"qwen.tiktoken": "ranks.tiktoken"}, {"tokenizer_class": "QWenTokenizer"}, record(QWEN, {name: N + i for i, name in enumerate(qwen)}, [], [], composes=True)),
    "GLM-4": ({"tokenizer.model": "ranks.tiktoken"}, {"tokenizer_class": "ChatGLM4Tokenizer", **listed(glm)}, record(GLM, {name: i for i, name in glm.items()}, ["[gMASK]", "<sop>"], ["<|endoftext|>"])),
    "Kimi": ({"tiktoken.model": "ranks.tiktoken"}, {"tokenizer_class": "TikTokenTokenizer", **listed(kimi)},
             record(KIMI, {kimi.get(i, f"<|reserved_token_{i}|>"): i for i in range(N, N + 256)}, [], [])),
}


def tekken(special: list[str] | None, count: int, release: str) -> tuple[dict[str, str], dict[str, object], dict[str, object]]:
    """A tekken.json with more tokens than its vocabulary uses."""
    spare = 5
    content = {"config": {"pattern": TEKKEN, "num_vocab_tokens": N, "default_vocab_size": N - spare + count, "default_num_special_tokens": count, "version": release},
               "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for token, rank in RANKS.items()]}
    if special is not None:
        content["special_tokens"] = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(special)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tekken.json"
        path.write_text(json.dumps(content))
        used = Tekkenizer.from_file(path)
    # Control tokens in texts are plain text to mistral-common, but tokens by themselves to transformers.
    control = {used.id_to_piece(number): number for number in range(count)}
    parts = lambda text: re.split(f"({'|'.join(map(re.escape, control))})", text)
    ids = [[1, *(i for part in parts(text) for i in ([control[part]] if part in control else used.encode(part, bos=False, eos=False)))] for text in TEXTS]
    return content, {"ids": ids, "pair": ids[1] + used.encode(TEXTS[15], bos=False, eos=False)}


def main() -> None:
    """Write the ids of every text and of a pair by every class."""
    golden = {"source": f"tiktoken {version('tiktoken')}, mistral-common {version('mistral-common')}", "texts": TEXTS, "cases": {}}
    for name, (files, config, made) in cases.items():
        golden["cases"][name] = {"files": files, "contents": {"tokenizer_config.json": config}, **made}
    for name, special, count, release in (("tekken of version 3", None, 30, "v3"), ("tekken of version 11", ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"], 10, "v11")):
        content, made = tekken(special, count, release)
        golden["cases"][name] = {"files": {}, "contents": {"tekken.json": content}, **made}
    GOLDEN.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
