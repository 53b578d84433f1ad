"""Record what the steps of tokenizers make of hard texts, for tokenizer-steps.test.ts.

Usage, from the repository root: python test/golden/make-tokenizer-steps.py
Needs the packages of models/training/requirements.txt, and sentencepiece, which compiles the table of replacements.
The vocabulary is single characters, alone and continuing a word: so the ids show every cut.
"""

import io
import json
from pathlib import Path

import sentencepiece as spm
import tokenizers
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Regex, Tokenizer, models
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p

TEXTS = [
    "", " ", "  two  spaces ", "a.b, c!? (d) -- e", "it's 12 345, ٣٤ ½ ² 7.5", "tab\tnew\nline\r\nend", "na\u00efve cafe\u0301 ΑΣ ΣΑΣ",
    "a\u0085b\ufeffc\u00a0d\u3000e", "snake_case x\u200dy", "ﬁ ｶﾞ １２ ㎏ ①", "👨‍👩‍👧 👍🏽", "日本語。テスト", "\ufeff lead", "end \u0085",
]
# Replacements as SentencePiece writes them: code points, a tab, what they become.
TABLE = ["FB01\t66 69", "FF76 FF9E\t30AC", "FF11\t31", "FF12\t32", "338F\t6B 67", "65 301\tE9", "A0\t20", "3000\t20", "9\t20", "A\t20", "D\t20", "D A\t20", "AD\t"]


def charsmap() -> bytes:
    """A small table, compiled by SentencePiece itself."""
    rules, out = Path("/tmp/rules.tsv"), io.BytesIO()
    rules.write_text("\n".join(TABLE) + "\n")
    spm.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 20), model_writer=out, vocab_size=12, model_type="char",
                                   normalization_rule_tsv=str(rules), minloglevel=2)
    rules.unlink()
    model = proto.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


SPLIT = p.WhitespaceSplit()
BEHAVIOURS = ["removed", "isolated", "contiguous", "merged_with_previous", "merged_with_next"]
STEPS = {
    "Whitespace": (None, p.Whitespace()),
    "WhitespaceSplit": (None, SPLIT),
    "BertPreTokenizer": (None, p.BertPreTokenizer()),
    "Digits, each": (None, p.Sequence([SPLIT, p.Digits(individual_digits=True)])),
    "Digits": (None, p.Sequence([SPLIT, p.Digits(individual_digits=False)])),
    **{f"Punctuation, {b}": (None, p.Sequence([SPLIT, p.Punctuation(b)])) for b in BEHAVIOURS},
    **{f"Split, {b}": (None, p.Split(Regex(r"[\s.]"), b)) for b in BEHAVIOURS},
    **{f"Split at a string, {b}": (None, p.Split(" ", b)) for b in BEHAVIOURS},
    "Split, inverted": (None, p.Split(Regex(r"[a-z]+"), "isolated", invert=True)),
    "Lowercase": (n.Lowercase(), SPLIT),
    "BertNormalizer": (n.BertNormalizer(), p.BertPreTokenizer()),
    "Strip": (n.Strip(), p.Metaspace(prepend_scheme="never")),
    "Strip on the left": (n.Strip(left=True, right=False), p.Metaspace(prepend_scheme="never")),
    "ByteLevel": (None, p.ByteLevel(add_prefix_space=False)),
    "Precompiled": (n.Precompiled(charsmap()), p.Metaspace(prepend_scheme="always")),
    "Precompiled in a sequence": (n.Sequence([n.NFC(), n.Precompiled(charsmap())]), SPLIT),
}


def main() -> None:
    """Write the ids of every text by every step."""
    letters = sorted({c for text in TEXTS for form in (text, text.lower(), text.replace("ﬁ", "fi")) for c in form} | set("▁ガkg1234567890é"))
    stand_ins = [c for c in p.ByteLevel.alphabet() if c not in letters]
    words = ["[UNK]", *letters, *(f"##{c}" for c in letters), *sorted(stand_ins), *(f"##{c}" for c in sorted(stand_ins))]
    vocab = {word: number for number, word in enumerate(words)}
    cases = {}
    for name, (normalizer, pre_tokenizer) in STEPS.items():
        tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizer
        parsed = json.loads(tokenizer.to_str())
        cases[name] = {"normalizer": parsed["normalizer"], "pre_tokenizer": parsed["pre_tokenizer"], "ids": [tokenizer.encode(text).ids for text in TEXTS]}
    golden = {"source": f"tokenizers {tokenizers.__version__}, sentencepiece {spm.__version__}", "texts": TEXTS, "words": words, "cases": cases}
    Path("test/golden/tokenizer-steps.json").write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
