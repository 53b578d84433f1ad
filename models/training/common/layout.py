"""Writing model folders in the layout of the hub, and the manifest that proves them whole."""

import hashlib
import json
from pathlib import Path
from typing import Any

from .paths import model_dir

MANIFEST = "manifest.json"
UNLISTED = {MANIFEST, "README.md", "eval.json"}


def write_json(path: Path, data: Any, compact: bool = False) -> None:
    """JSON with a final newline, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, ensure_ascii=False, **({"separators": (",", ":")} if compact else {"indent": 2}))
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text + "\n")
    temporary.replace(path)


def write_bytes(path: Path, data: bytes) -> None:
    """A binary file, atomically, so that a reader never sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def write_manifest(name: str) -> None:
    """sha256 and size of every file that is loaded."""
    folder = model_dir(name)
    files = {}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        if path.is_file() and relative not in UNLISTED and not relative.endswith(".tmp"):
            data = path.read_bytes()
            files[relative] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    write_json(folder / MANIFEST, {"files": files})


def special_tokens_map(tokens: dict[str, str]) -> dict[str, Any]:
    """The form in which tokenizers name their special tokens."""
    return {
        name: {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
        for name, content in tokens.items()
    }


def added_tokens_decoder(tokenizer_json: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json repeats the added tokens by their ids."""
    keep = ("content", "lstrip", "normalized", "rstrip", "single_word", "special")
    return {str(token["id"]): {key: token[key] for key in keep} for token in tokenizer_json["added_tokens"]}
