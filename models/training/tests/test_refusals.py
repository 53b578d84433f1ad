"""`train` and `export` say in one sentence what is missing or wrong, and write nothing."""

import contextlib
import importlib
import io
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path

import torch

from ..common import paths

MODELS = ("tiny_chat", "tiny_embed", "tiny_rerank", "tiny_moderation", "tiny_whisper", "tiny_sd", "tiny_vlm", "tiny_tts")
NEEDED = {"tiny-embed": "tokenizer.json", "tiny-chat": "tokenizer.json", "tiny-whisper": "tokenizer.json", "tiny-vlm": "tokenizer.json"}


def _refusal(action: Callable[[], object]) -> str:
    """What is printed on the way out."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.suppress(SystemExit):
        action()
        raise AssertionError("it went on")
    return said.getvalue()


class Refusals(unittest.TestCase):
    """Each in empty folders."""

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.work, self.models = Path(scratch.name) / "work", Path(scratch.name) / "models"
        for name, value in (("WORK", self.work), ("MODELS", self.models)):
            self.addCleanup(setattr, paths, name, getattr(paths, name))
            setattr(paths, name, value)

    def assert_sentence(self, text: str) -> None:
        """One line that ends, without a stack."""
        self.assertRegex(text, r"^[^\n]+\.\n$")
        self.assertNotIn("Traceback", text)
        self.assertEqual([path for path in self.models.rglob("*") if path.is_file()], [])

    def test_export_without_training(self) -> None:
        for model in MODELS:
            with self.subTest(model):
                self.assert_sentence(_refusal(importlib.import_module(f"models.training.{model}.export").export))

    def test_training_without_its_data(self) -> None:
        for model in MODELS:
            with self.subTest(model):
                train = importlib.import_module(f"models.training.{model}.train").train
                self.assert_sentence(_refusal(lambda train=train: train(1, False, None)))

    def test_measuring_without_an_export(self) -> None:
        for model in MODELS:
            with self.subTest(model):
                self.assert_sentence(_refusal(importlib.import_module(f"models.training.{model}.evaluate").evaluate))

    def test_export_of_something_else(self) -> None:
        real = Path(paths.__file__).resolve().parent.parent.parent
        for folder, file in NEEDED.items():
            for label, content in (("nothing", None), ("other", {"model": {"a": torch.zeros(1)}})):
                with self.subTest(f"{folder} {label}"):
                    work = paths.work_dir(folder)
                    (work / file).write_bytes((real / folder / file).read_bytes())
                    path = work / "checkpoint.pt"
                    torch.save(content, path) if content else path.write_bytes(b"not a checkpoint")
                    export = importlib.import_module(f"models.training.{folder.replace('-', '_')}.export").export
                    self.assert_sentence(_refusal(export))


if __name__ == "__main__":
    unittest.main()
