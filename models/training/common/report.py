"""eval.json: what was measured on the exported files."""

import datetime
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .layout import write_json
from .paths import model_dir


_LOADER = """
import json, resource, sys, time
import onnxruntime as ort
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6
before, started = resident(), time.perf_counter()
sessions = [ort.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in sys.argv[1:]]
print(json.dumps({"milliseconds": round((time.perf_counter() - started) * 1000), "residentMegabytes": round(resident() - before, 1)}))
"""


def load_cost(paths: list[Path]) -> dict[str, Any]:
    """Milliseconds and resident megabytes of loading the given ONNX files, measured in a fresh process (Linux)."""
    command = [sys.executable, "-c", _LOADER, *map(str, paths)]
    measured = json.loads(subprocess.run(command, capture_output=True, check=True, text=True, timeout=120).stdout)
    return {"files": len(paths), "bytes": sum(path.stat().st_size for path in paths), **measured}


def write_eval(name: str, body: dict[str, Any]) -> None:
    """models/<name>/eval.json, with the day it was measured."""
    write_json(model_dir(name) / "eval.json", {"model": name, "measured": datetime.date.today().isoformat(), **body})


def share(flags: list[bool]) -> float:
    """The share of true values, three digits."""
    return round(sum(flags) / max(1, len(flags)), 3)


def print_scores(scores: dict[str, Any], show: Callable[[str], None] = print) -> None:
    """One line per score."""
    for key, value in scores.items():
        show(f"{key:24} {value}")
