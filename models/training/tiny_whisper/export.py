"""Checkpoint to the layout of the hub's Whisper models."""

import json
import shutil

import onnx
from transformers import WhisperFeatureExtractor

from ..common.errors import refuse
from ..common.layout import added_tokens_decoder, special_tokens_map, write_bytes, write_json, write_manifest
from ..common.loop import read_checkpoint
from ..common.paths import model_dir, work_dir
from ..common.storage import shrink
from ..common.vocabulary_file import load_tokenizer
from ..common.whisper_export import export_encoder, export_merged
from .grammar import LANGUAGES
from .model import Trained
from .train import NAME
from .vocabulary import SECONDS, SPECIAL, STEP, Vocabulary

ENCODER, DECODER = "onnx/encoder_model_quantized.onnx", "onnx/decoder_model_merged_quantized.onnx"


def generation_config(vocabulary: Vocabulary) -> dict[str, object]:
    """Languages, tasks and the rules of decoding."""
    end = vocabulary.end
    return {
        "bos_token_id": end, "eos_token_id": end, "pad_token_id": end, "decoder_start_token_id": vocabulary.id("<|startoftranscript|>"),
        "is_multilingual": True, "lang_to_id": {f"<|{code}|>": vocabulary.id(f"<|{code}|>") for code in LANGUAGES},
        "task_to_id": {task: vocabulary.id(f"<|{task}|>") for task in ("transcribe", "translate")},
        "no_timestamps_token_id": vocabulary.id("<|notimestamps|>"), "prev_sot_token_id": vocabulary.id("<|startofprev|>"), "max_length": 128,
        "max_initial_timestamp_index": round(SECONDS / STEP), "return_timestamps": False, "begin_suppress_tokens": [end], "suppress_tokens": [],
    }


def _write_texts(vocabulary: Vocabulary) -> None:
    work, folder = work_dir(NAME), model_dir(NAME)
    tokenizer_json = json.loads((work / "tokenizer.json").read_text())
    shutil.copy(work / "tokenizer.json", folder / "tokenizer.json")
    end = SPECIAL[0]
    marks = {"bos_token": end, "eos_token": end, "unk_token": end, "pad_token": end}
    write_json(folder / "special_tokens_map.json", special_tokens_map(marks))
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "WhisperTokenizer", **marks, "add_prefix_space": False, "clean_up_tokenization_spaces": False, "model_max_length": 128,
        "added_tokens_decoder": added_tokens_decoder(tokenizer_json),
    }, compact=True)
    write_json(folder / "added_tokens.json", {t["content"]: t["id"] for t in tokenizer_json["added_tokens"]}, compact=True)
    write_json(folder / "generation_config.json", generation_config(vocabulary))
    extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=SECONDS)
    settings = {key: value for key, value in extractor.to_dict().items() if key != "mel_filters"}
    settings |= {"n_samples": SECONDS * 16_000, "nb_max_frames": SECONDS * 100, "processor_class": "WhisperProcessor"}
    write_json(folder / "preprocessor_config.json", settings)


def export() -> None:
    """Write models/tiny-whisper from the newest checkpoint, with the heads that time words."""
    from .alignment import write_heads  # which reads what is written here

    work, folder = work_dir(NAME), model_dir(NAME)
    state = read_checkpoint(work / "checkpoint.pt")["model"]
    vocabulary = Vocabulary(load_tokenizer(work / "tokenizer.json"))
    trained = Trained(vocabulary)
    try:
        trained.load_state_dict(state)
    except RuntimeError:
        refuse(f"{work / 'checkpoint.pt'} does not have the shape of tiny-whisper.")
    model, scratch = trained.whisper.eval(), work / "export.onnx"
    for path, write in ((ENCODER, export_encoder), (DECODER, export_merged)):
        write(model, scratch)
        write_bytes(folder / path, shrink(onnx.load(scratch), "int8").SerializeToString())
    config = json.loads(model.config.to_json_string(use_diff=False))
    dropped = [key for key in config if key.startswith("_") or config[key] is None]
    write_json(folder / "config.json", {key: value for key, value in config.items() if key not in dropped})
    _write_texts(vocabulary)
    write_manifest(NAME)
    print(f"wrote {folder}")
    write_heads()
