"""Record what rarely used parts of tokenizers make of hard texts, for tokenizer-parts.test.ts.

Usage, from the repository root: python test/golden/make-tokenizer-parts.py
Needs the package tokenizers alone. The vocabulary is single characters, so the ids show every cut.
"""

import json
from pathlib import Path

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

TEXTS = [
    "", "a-b--c", " lead", "a\u0001b\u000bc\u007fd\u009fe", "tab\tnew\nff\u000ccr\r", "z\u200bz\u200ez\u2028z\u2029z\ufeffz\ufffdz▁z\u1680z\u180ez\u0085z",
    "京都 へ行くカーブ abc", "Привет world, ٣٤ नमस्ते 한글 1.5", "naïve é 👍🏽", "アaア-x",
]
SPLIT = p.WhitespaceSplit()
STEPS = {
    "Nmt": (n.Nmt(), SPLIT),
    "Nmt in a sequence": (n.Sequence([n.NFC(), n.Nmt()]), SPLIT),
    "ByteLevel as a normalizer": (n.ByteLevel(), p.Split("Ġ", "isolated")),
    "CharDelimiterSplit": (None, p.CharDelimiterSplit("-")),
    "CharDelimiterSplit in a sequence": (None, p.Sequence([SPLIT, p.CharDelimiterSplit("b")])),
    "UnicodeScripts": (None, p.UnicodeScripts()),
    "UnicodeScripts in a sequence": (None, p.Sequence([SPLIT, p.UnicodeScripts()])),
}
WORDS = ["<pad>", "|", "a", "b", " n't", "Ċx", "aab", "<unk>", " ."]
DECODED = [[2, 2, 0, 2, 1, 3, 3], [0, 0], [1, 2, 4, 8, 5, 6, 6], [6, 3, 2, 7]]
DECODERS = {
    "CTC": decoders.CTC("<pad>", "|", True),
    "CTC without cleanup": decoders.CTC("<pad>", "|", False),
    "Replace with a pattern": decoders.Sequence([decoders.Replace(Regex(r"a+|Ċ(?=x)"), "_"), decoders.Fuse()]),
}


def main() -> None:
    """Write the ids of every text by every step, the texts of ids by every decoder, and unknown words."""
    letters = sorted({c for text in TEXTS for c in text} | set(p.ByteLevel.alphabet()))
    words = ["[UNK]", *letters, *(f"##{c}" for c in letters)]
    steps = {}
    for name, (normalizer, pre_tokenizer) in STEPS.items():
        tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]", max_input_chars_per_word=100))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        parsed = json.loads(tokenizer.to_str())
        steps[name] = {"normalizer": parsed["normalizer"], "pre_tokenizer": parsed["pre_tokenizer"], "ids": [tokenizer.encode(text).ids for text in TEXTS]}
    decoded = {}
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    for name, decoder in DECODERS.items():
        tokenizer.decoder = decoder
        decoded[name] = {"decoder": json.loads(tokenizer.to_str())["decoder"], "texts": [tokenizer.decode(ids, skip_special_tokens=False) for ids in DECODED]}
    tokenizer.pre_tokenizer = SPLIT
    unknown = {"text": "a zz b . a", "ids": tokenizer.encode("a zz b . a").ids}
    golden = {"source": f"tokenizers {tokenizers.__version__}", "texts": TEXTS, "words": words, "steps": steps,
              "decoderWords": WORDS, "decodedIds": DECODED, "decoders": decoded, "unknown": unknown}
    Path("test/golden/tokenizer-parts.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
