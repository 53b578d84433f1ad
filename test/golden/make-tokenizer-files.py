"""Record what tokenizers without a tokenizer.json make of hard texts, for tokenizer-files.test.ts.

Usage, from the repository root: python test/golden/make-tokenizer-files.py
Needs transformers 4.57, sentencepiece, protobuf, fugashi and unidic-lite. Trains the small files of test/fixtures/tokenizers and reads them with the
classes of transformers: the fast one, which AutoTokenizer prefers, and the other one where a class has no fast one.
"""

import json
import shutil
import tempfile
import warnings
from pathlib import Path

import sentencepiece as spm
import transformers as tf
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import ByteLevelBPETokenizer
from tokenizers.pre_tokenizers import ByteLevel

warnings.filterwarnings("ignore")
tf.logging.set_verbosity_error()
FILES = Path("test/fixtures/tokenizers")
GOLDEN = Path("test/golden/tokenizer-files.json")
TEXTS = ["", "Hello world", " two  spaces   here ", "tab\tand\nline\r\nbreak", "Café naïve ÀÉ, e\u0301 und Straße", "１２ ﬁne … full－width ½",
         "don't you've I'LL 's", "10,000 and 3,14 or 7,", "``quoted'' \"text\"", "京都 へ行く カーブ 한국", "Привет 👍🏽 🙂", "x\u200by\u00a0z\u3000w",
         "a▁b __ -- (c) [d] {e}", "the  <mask> token </s> and <pad>", "[CLS] a [SEP] b [MASK]", "end", "naïve_case camelCase HTTPServer2", " lead", "trail ", "\n", "   ", ">>fra<< Hello world", "MKTAYIAK QRQ<mask>ISFVKSHF", "\u1112\u1161\u11ab \u1112\u1161"]
CORPUS = [line.strip() for line in """the cat sat on the mat and the dog ran in the house
hello world this is a small text for a small model of words
don't you think that we've said it's fine and I'll be there
numbers like 10 and 1,000 and 3,14 and 2025 are in here too
a house has a door and a window and the window has glass
der Hund und die Katze sind im Haus und die Straße ist lang
le café est naïve et la forêt est belle où nous étions
Hello World The End token and line break case Server full width fine
words end and begin with letters and spaces between them quoted text
x y z w a b c d e (round) [square] {curly} -- __ "quotes" 's""".split("\n")] * 4
RULES = "".join(f"{' '.join(f'{ord(c):X}' for c in a)}\t{' '.join(f'{ord(c):X}' for c in b)}\n" for a, b in
                [("\t", " "), ("\n", " "), ("\r", " "), ("\u00a0", " "), ("\u3000", " "), ("\u200b", " "), ("ﬁ", "fi"), ("…", "..."), ("－", "-"), ("½", "1⁄2"),
                 ("e\u0301", "é"), ("\u1112\u1161", "하"), ("\u1112\u1161\u11ab", "한"), *((chr(0xFF10 + i), str(i)) for i in range(10))])


def train(name: str, *, kind: str = "unigram", size: int = 190, rule: str | None = None, corpus: list[str] = CORPUS, **options: object) -> None:
    """A SentencePiece model of a few words, with a small table of replacements unless a rule is named."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text(RULES)
        norm = {"normalization_rule_name": rule} if rule else {"normalization_rule_tsv": str(rules)}
        spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus), model_prefix=f"{folder}/m", vocab_size=size, model_type=kind, character_coverage=1.0,
                                       hard_vocab_limit=False, minloglevel=2, num_threads=1, **norm, **options)
        made = proto.ModelProto.FromString(Path(f"{folder}/m.model").read_bytes())
        # Paths of this run.
        made.trainer_spec.model_prefix = made.normalizer_spec.normalization_rule_tsv = ""
        (FILES / name).write_bytes(made.SerializeToString())


def ids(**numbers: int) -> dict[str, int]:
    """The ids of control pieces as options of the trainer."""
    return {f"{name}_id": number for name, number in numbers.items()}


train("t5.model", **ids(pad=0, eos=1, unk=2, bos=-1))
train("t5-bytes.model", size=460, byte_fallback=True, **ids(pad=0, eos=1, unk=2, bos=-1))
train("fairseq.model", **ids(unk=0, bos=1, eos=2, pad=-1))
train("fairseq-bpe.model", kind="bpe", size=200, **ids(unk=0, bos=1, eos=2, pad=-1))
train("llama.model", kind="bpe", size=460, rule="identity", byte_fallback=True, split_digits=True, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, **ids(unk=0, bos=1, eos=2, pad=-1))
train("gemma.model", kind="bpe", size=470, rule="identity", byte_fallback=True, split_digits=True, remove_extra_whitespaces=False, add_dummy_prefix=False, allow_whitespace_only_pieces=True,
      user_defined_symbols=",".join(("<mask>", "<2mass>", "<start_of_turn>", "<end_of_turn>", "\n", "\n\n", "▁▁", "▁▁▁")), **ids(pad=0, eos=1, bos=2, unk=3), bos_piece="<bos>", eos_piece="<eos>")
train("albert.model", **ids(pad=0, unk=1, bos=-1, eos=-1), control_symbols=",".join(("[CLS]", "[SEP]")), user_defined_symbols="[MASK]")
train("deberta.model", **ids(pad=0, bos=1, eos=2, unk=3), pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]", unk_piece="[UNK]")
train("xlnet.model", **ids(unk=0, bos=1, eos=2, pad=-1), control_symbols=",".join(("<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>")))
train("camembert.model", **ids(unk=0, bos=1, eos=2, pad=-1))
train("bigbird.model", **ids(pad=0, eos=1, bos=2, unk=3), control_symbols=",".join(("[CLS]", "[SEP]", "[MASK]")))
train("source.spm", size=170, **ids(eos=0, unk=1, bos=-1, pad=-1))
train("target.spm", size=150, corpus=[line for line in CORPUS if any(word in line for word in ("der ", "le ", "numbers"))], **ids(eos=0, unk=1, bos=-1, pad=-1))


def byte_level(specials: list[str], vocab: str, merges: str) -> None:
    """The files of a byte-level BPE."""
    with tempfile.TemporaryDirectory() as folder:
        made = ByteLevelBPETokenizer()
        made.train_from_iterator(CORPUS, vocab_size=420, min_frequency=2, special_tokens=specials)
        made.save_model(folder)
        shutil.copy(f"{folder}/vocab.json", FILES / vocab)
        shutil.copy(f"{folder}/merges.txt", FILES / merges)


byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], "roberta-vocab.json", "roberta-merges.txt")
renamed = dict(zip(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]))
(FILES / "deberta-vocab.json").write_text(json.dumps({renamed.get(t, t): i for t, i in json.loads((FILES / "roberta-vocab.json").read_text()).items()}))
byte_level(["<|endoftext|>"], "gpt2-vocab.json", "gpt2-merges.txt")
words = sorted({w for line in CORPUS for w in line.lower().split() if w.isalpha() and w.isascii()} | {c for c in "abcdefghijklmnopqrstuvwxyz0123456789.,'\"-()[]{}`_ßéè京都"})
lines = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789ßé"), "Hello", "##ing", "Hous", "H", "S", "T", "C", "L", "A", "É", "À"]
(FILES / "vocab.txt").write_text("\n".join(lines) + "\n")
(FILES / "mpnet-vocab.txt").write_text("\n".join(["<s>", "<pad>", "</s>", "<unk>", *lines[5:], "[UNK]", "<mask>"]) + "\n")
(FILES / "esm-vocab.txt").write_text("\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]))
# A CLIP vocabulary: letters, letters that end words, merges, two markers.
letters = sorted(ByteLevel.alphabet())
merges = ["t h", "th e</w>", "a n", "an d</w>", "o n</w>", "h e", "l l", "he ll", "hell o</w>", "w o", "r l", "e n", "en d</w>", "1 0"]
vocab = [*letters, *(f"{c}</w>" for c in letters), *(m.replace(" ", "") for m in merges), "<|startoftext|>", "<|endoftext|>"]
vocab = list(dict.fromkeys(vocab))
(FILES / "clip-vocab.json").write_text(json.dumps({t: i for i, t in enumerate(vocab)}))
(FILES / "clip-merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
source = spm.SentencePieceProcessor(model_file=str(FILES / "source.spm"))
target = spm.SentencePieceProcessor(model_file=str(FILES / "target.spm"))
pieces = [source.id_to_piece(i) for i in range(source.get_piece_size())]
# Some pieces of the source never occurred in the training data, so the vocabulary lacks them.
known = [p for i, p in enumerate(pieces) if i < 2 or i % 7]
union = list(dict.fromkeys([*known[:2], *sorted({*known[2:], *(target.id_to_piece(i) for i in range(2, target.get_piece_size())), "京", "▁京"}), ">>fra<<", ">>deu<<", "<pad>"]))
(FILES / "marian-vocab.json").write_text(json.dumps({t: i for i, t in enumerate(union)}))
own = ["</s>", "<unk>", *(target.id_to_piece(i) for i in range(2, target.get_piece_size())), "<pad>"]
two = {"target_vocab.json": {t: i for i, t in enumerate(own)}}
for name in ("fairseq", "fairseq-bpe"):
    model = spm.SentencePieceProcessor(model_file=str(FILES / f"{name}.model"))
    names = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(i) for i in range(3, model.get_piece_size()) if i % 9)]
    (FILES / f"{name}-vocab.json").write_text(json.dumps({t: i for i, t in enumerate(names)}))
whisper_added = {t: 420 + i for i, t in enumerate(["<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nocaptions|>", "<|notimestamps|>"])}
mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False}
bpe = lambda prefix: {"vocab.json": f"{prefix}-vocab.json", "merges.txt": f"{prefix}-merges.txt"}
CASES = {
    "T5": ("T5", {"spiece.model": "t5.model"}, {}, {}),
    "T5 with ten extra ids and a byte fallback": ("T5", {"spiece.model": "t5-bytes.model"}, {"extra_ids": 10}, {}),
    "T5 with the newer treatment of spaces": ("T5", {"spiece.model": "t5.model"}, {"legacy": False, "extra_ids": 0}, {}),
    "XLM-RoBERTa": ("XLMRoberta", {"sentencepiece.bpe.model": "fairseq.model"}, {}, {}),
    "CamemBERT": ("Camembert", {"sentencepiece.bpe.model": "camembert.model"}, {}, {}),
    "ALBERT": ("Albert", {"spiece.model": "albert.model"}, {}, {}),
    "ALBERT with accents and capitals": ("Albert", {"spiece.model": "albert.model"}, {"do_lower_case": False, "keep_accents": True}, {}),
    "DeBERTa-v2": ("DebertaV2", {"spm.model": "deberta.model"}, {"do_lower_case": False, "split_by_punct": False}, {}),
    "DeBERTa-v2 in lower case with cut punctuation": ("DebertaV2", {"spm.model": "deberta.model"}, {"do_lower_case": True, "split_by_punct": True}, {}),
    "mBART": ("MBart", {"sentencepiece.bpe.model": "fairseq.model"}, {"src_lang": "fr_XX", "tgt_lang": "de_DE"}, {}),
    "mBART-50": ("MBart50", {"sentencepiece.bpe.model": "fairseq.model"}, {"src_lang": "fr_XX"}, {}),
    "NLLB": ("Nllb", {"sentencepiece.bpe.model": "fairseq-bpe.model"}, {"src_lang": "fra_Latn"}, {}),
    "NLLB as it used to be": ("Nllb", {"sentencepiece.bpe.model": "fairseq-bpe.model"}, {"legacy_behaviour": True}, {}),
    "M2M100": ("M2M100", {"sentencepiece.bpe.model": "fairseq-bpe.model", "vocab.json": "fairseq-bpe-vocab.json"}, {"src_lang": "fr"}, {}),
    "M2M100 with a unigram model": ("M2M100", {"sentencepiece.bpe.model": "fairseq.model", "vocab.json": "fairseq-vocab.json"}, {}, {}),
    "Marian": ("Marian", {"source.spm": "source.spm", "target.spm": "target.spm", "vocab.json": "marian-vocab.json"}, {}, {}),
    "Marian with two vocabularies": ("Marian", {"source.spm": "source.spm", "target.spm": "target.spm", "vocab.json": "marian-vocab.json"}, {"separate_vocabs": True}, two),
    "Pegasus": ("Pegasus", {"spiece.model": "t5.model"}, {}, {}),
    "XLNet": ("XLNet", {"spiece.model": "xlnet.model"}, {}, {}),
    "BigBird": ("BigBird", {"spiece.model": "bigbird.model"}, {}, {}),
    "XGLM": ("XGLM", {"sentencepiece.bpe.model": "fairseq.model"}, {}, {}),
    "Llama": ("Llama", {"tokenizer.model": "llama.model"}, {}, {}),
    "Llama with the newer treatment of spaces": ("Llama", {"tokenizer.model": "llama.model"}, {"legacy": False, "add_eos_token": True}, {}),
    "Llama without a prefixed space, with added tokens": ("Llama", {"tokenizer.model": "llama.model"}, {"add_prefix_space": False, "add_bos_token": False, "legacy": True, "pad_token": "<pad>"}, {"added_tokens.json": {"<pad>": 460, "[CLS]": 461}}),
    "Gemma": ("Gemma", {"tokenizer.model": "gemma.model"}, {}, {}),
    "GPT-2": ("GPT2", bpe("gpt2"), {}, {}),
    "GPT-2 with a prefixed space and a start": ("GPT2", bpe("gpt2"), {"add_prefix_space": True, "add_bos_token": True}, {}),
    "RoBERTa": ("Roberta", bpe("roberta"), {}, {}),
    "RoBERTa of older files": ("Roberta", bpe("roberta"), {}, {"special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "mask_token": mask}, "added_tokens.json": {"[CLS]": 420}}),
    "BART": ("Bart", bpe("roberta"), {"add_prefix_space": True}, {}),
    "Blenderbot": ("Blenderbot", bpe("roberta"), {}, {}),
    "DeBERTa": ("Deberta", {"vocab.json": "deberta-vocab.json", "merges.txt": "roberta-merges.txt"}, {}, {}),
    "Whisper": ("Whisper", bpe("gpt2"), {}, {"added_tokens.json": whisper_added, "special_tokens_map.json": {"additional_special_tokens": list(whisper_added)}}),
    "Qwen2": ("Qwen2", bpe("gpt2"), {"added_tokens_decoder": {"420": {"content": "<|im_start|>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True},
                                                             "421": {"content": "</s>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": False}}}, {}),
    "CLIP": ("CLIP", bpe("clip"), {}, {}),
    "BERT": ("Bert", {"vocab.txt": "vocab.txt"}, {}, {}),
    "BERT with capitals": ("Bert", {"vocab.txt": "vocab.txt"}, {"do_lower_case": False, "tokenize_chinese_chars": False}, {}),
    "BERT in lower case with accents": ("DistilBert", {"vocab.txt": "vocab.txt"}, {"do_lower_case": True, "strip_accents": False}, {}),
    "ELECTRA": ("Electra", {"vocab.txt": "vocab.txt"}, {}, {}),
    "MPNet": ("MPNet", {"vocab.txt": "mpnet-vocab.txt"}, {}, {}),
    "SigLIP": ("Siglip", {"spiece.model": "t5.model"}, {}, {}),
    "BERT of Japanese characters": ("BertJapanese", {"vocab.txt": "vocab.txt"}, {"word_tokenizer_type": "mecab", "subword_tokenizer_type": "character", "mecab_kwargs": {"mecab_dic": "unidic_lite"}}, {}),
    "BERT of Japanese characters in lower case": ("BertJapanese", {"vocab.txt": "vocab.txt"}, {"word_tokenizer_type": "mecab", "subword_tokenizer_type": "character", "do_lower_case": True}, {}),
    "ESM": ("Esm", {"vocab.txt": "esm-vocab.txt"}, {}, {}),
    "ByT5": ("ByT5", {}, {}, {}),
}


def main() -> None:
    """Write the ids of every text and of a pair by every class."""
    golden = {"source": f"transformers {tf.__version__}, sentencepiece {spm.__version__}", "texts": TEXTS, "cases": {}}
    for name, (family, files, config, others) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            for own, shared in files.items():
                shutil.copy(FILES / shared, Path(folder) / own)
            contents = {"tokenizer_config.json": {"tokenizer_class": f"{family}Tokenizer", **config}, **others}
            for own, content in contents.items():
                (Path(folder) / own).write_text(json.dumps(content))
            # The original code of SigLIP strips captions; transformers keeps a space before them.
            used = (getattr(tf, f"{family}TokenizerFast", None) or getattr(tf, f"{family}Tokenizer")).from_pretrained(folder)
            golden["cases"][name] = {"files": files, "contents": contents, "ids": [used.encode(text.lstrip(" ") if family == "Siglip" else text) for text in TEXTS], "pair": used.encode(TEXTS[1], TEXTS[15])}
    GOLDEN.write_text(json.dumps(golden, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
