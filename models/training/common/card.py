"""Model cards: prose from the model's own module, every number from eval.json."""

import json
from dataclasses import dataclass
from typing import Any

from .paths import model_dir


@dataclass(frozen=True)
class Card:
    """The fixed words of a card; `rows` turns eval.json into table rows."""

    name: str
    task: str
    what: str
    intended_use: str
    limitations: str
    files: str
    labels: dict[str, str]
    lower_is_better: bool = False  # of goals up to one half, such as error rates


def _score(entry: Any) -> str:
    if isinstance(entry, dict):
        if "score" in entry:
            return f"{entry['score']:.3g}"
        return ", ".join(f"{key} {value}" for key, value in entry.items())
    return str(entry)


def _row(label: str, entry: Any) -> str:
    wanted = entry.get("wanted") if isinstance(entry, dict) else None
    return f"| {label} | {_score(entry)} | {wanted if wanted is not None else ''} |"


def _missed(card: Card, gates: dict[str, Any]) -> str:
    names = []
    for key, entry in gates.items():
        if isinstance(entry, dict) and "wanted" in entry:
            short = entry["score"] > entry["wanted"] if card.lower_is_better and "score" in entry and entry["wanted"] <= 0.5 else entry["score"] < entry["wanted"]
            if short:
                names.append(card.labels.get(key, key))
    if not names:
        return "All goals in the table are met."
    return "Not reached yet: " + "; ".join(names) + ". More training of the same kind (`train --resume` with more minutes) is the remedy."


def _curve(rows: list[dict[str, Any]]) -> str:
    """How the scores grew with what was seen, where `evaluate` has kept that."""
    if len(rows) < 2:
        return ""
    names = list(rows[0])
    lines = [" | ".join(names), " | ".join("---" for _ in names), *(" | ".join(str(row.get(name, "")) for name in names) for row in rows)]
    return "\n## Learning curve\n\n" + "\n".join(f"| {line} |" for line in lines) + "\n"


def write_card(card: Card) -> None:
    """models/<name>/README.md."""
    folder = model_dir(card.name)
    measured = json.loads((folder / "eval.json").read_text())
    load = measured["load"]
    rows = [_row(card.labels.get(key, key), entry) for key, entry in measured["gates"].items()]
    rows += [_row(card.labels[key], measured[key]) for key in card.labels if key in measured]
    text = f"""---
license: apache-2.0
library_name: onnx
pipeline_tag: {card.task}
---
# {card.name}

{card.what}

**Demo-grade.** The model was trained from scratch on synthetic text, speech or images from the generators in `models/training`, so that a
fresh clone works without a network. It knows nothing else. For real work, point the same entry of `models.json` to a production model.

## Intended use

{card.intended_use}

## Evaluation

Measured on {measured["measured"]} with the committed files on problems that were not in the training data (`eval.json`, written by
`python -m models.training.{card.name.replace("-", "_")} evaluate`):

| Score | Measured | Goal |
| --- | --- | --- |
{chr(10).join(rows)}

{_missed(card, measured["gates"])}
{_curve(measured.get("curve", []))}
## Limitations

{card.limitations}

## Files

{card.files}

Loading takes about {load["milliseconds"]} ms and {load["residentMegabytes"]} MB of memory for {load["bytes"] / 1e6:.1f} MB of files
(ONNX Runtime, CPU). `manifest.json` lists size and SHA-256 of every file that is loaded.
"""
    (folder / "README.md").write_text(text)
