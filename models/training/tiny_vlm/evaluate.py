"""Answers of the exported files to questions about held-out scenes."""

import base64
import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from PIL import Image, ImageDraw, ImageFont

from ..common.errors import refuse
from ..common.layout import write_json
from ..common.paths import EVALS, model_dir
from ..common.report import load_cost, print_scores, share, write_eval
from ..common.vocabulary_file import load_tokenizer
from . import NAME
from .drawing import as_jpeg, distorted, draw, resized
from .export import DECODER, EMBED, VISION
from .questions import NO_IMAGE, Question, question
from .render import END, Writer
from .scenes import DIGITS, MOST, PALETTE, View, digit_view, shapes_view, view

COUNT, LONGEST = 300, 40
SIZES = (64, 96, 200)  # sides of the measured images; all but the first are resized
WANTED = {"colour": 0.95, "count": 0.95, "relation": 0.9, "digit": 0.9}
SHOWN = {"colour": 12, "count": 12, "relation": 12, "digit": 12, "caption": 4}


class Chat:
    """The exported folder, greedily, one question at a time."""

    def __init__(self, folder: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.vision, self.embed, self.decoder = (ort.InferenceSession(str(folder / file), options, providers=["CPUExecutionProvider"]) for file in (VISION, EMBED, DECODER))
        self.tokenizer = load_tokenizer(folder / "tokenizer.json")
        self.writer = Writer(self.tokenizer)
        self.past = {value.name: value.shape for value in self.decoder.get_inputs() if value.name.startswith("past_key_values")}

    def _run(self, embeds: np.ndarray, done: int, cache: dict[str, np.ndarray]) -> tuple[int, dict[str, np.ndarray]]:
        mask = np.ones((1, done + embeds.shape[1]), np.int64)
        logits, *present = self.decoder.run(None, {"inputs_embeds": embeds, "attention_mask": mask, **cache})
        return int(logits[0, -1].argmax()), dict(zip(cache, present, strict=True))

    def _embedded(self, ids: list[int]) -> np.ndarray:
        return self.embed.run(None, {"input_ids": np.array([ids])})[0]

    def answer(self, image: np.ndarray | None, text: str) -> str:
        """The text up to the end of the turn."""
        prefix = self.writer.prefix(None, image is not None)
        ids = [*prefix, *self.writer.words(text), self.writer.id["<|assistant|>"]]
        chunk = self._embedded(ids)
        if image is not None:
            pixels = image.transpose(2, 0, 1)[None].astype(np.float32) / 127.5 - 1
            seen = self.vision.run(None, {"pixel_values": pixels})[0]
            chunk[:, len(prefix) - seen.shape[1] : len(prefix)] = seen
        cache = {name: np.zeros((1, shape[1], len(ids) + LONGEST, shape[3]), np.float32) for name, shape in self.past.items()}
        done, out = 0, []
        while len(out) < LONGEST:
            token, cache = self._run(chunk, done, cache)
            done += chunk.shape[1]
            if token == self.writer.id[END]:
                break
            out.append(token)
            chunk = self._embedded([token])
        return self.tokenizer.decode(out)


@dataclass(frozen=True)
class Asked:
    """A question with the image that it is about, in the size that a client sends."""

    image: np.ndarray
    question: Question


Draw = Callable[[View, random.Random], np.ndarray]
Pick = Callable[[random.Random], tuple[View, str]]


def plain(shown: View, rng: random.Random) -> np.ndarray:
    """Without distortions, in one of the measured sizes."""
    return draw(shown, rng, rng.choice(SIZES), jitter=6)


def asked(seed: str, pick: Pick, count: int = COUNT, paint: Draw = plain, unseen: bool = False) -> list[Asked]:
    """Questions of one kind about fresh views."""
    rng, found = random.Random(f"tiny-vlm/{seed}"), []
    while len(found) < count:
        shown, kind = pick(rng)
        made = question(shown, rng, unseen, kind)
        if made:
            found.append(Asked(paint(shown, rng), made))
    return found


def _shapes(kinds: tuple[str, ...], least: int = 1) -> Pick:
    """Views with at least one pair of colour and shape that training never had."""
    return lambda rng: (shapes_view(rng, rng.randint(least, MOST), True), rng.choice(kinds))


PICKS: dict[str, Pick] = {
    "colour": _shapes(("colour",)), "count": _shapes(("count",)), "relation": _shapes(("relation", "where", "beside"), 2), "digit": lambda rng: (digit_view(rng, True), "digit"),
    "whether": _shapes(("relation",), 2), "where": _shapes(("where",), 2), "beside": _shapes(("beside",), 2), "kind": _shapes(("kind",)),
    "background": _shapes(("ground",)), "countSome": _shapes(("countSome",)), "exists": _shapes(("exists",)), "place": _shapes(("place",)), "outermost": _shapes(("outermost",), 2),
    "isDigit": lambda rng: (digit_view(rng, True), "isDigit"), "caption": _shapes(("caption",)),
}


def _right(chat: Chat, questions: list[Asked]) -> float:
    return share([chat.answer(resized(one.image), one.question.text) == one.question.answer for one in questions])


def _any(rng: random.Random) -> tuple[View, str]:
    kind = rng.choice(("colour", "count", "relation", "where", "digit"))
    return (digit_view(rng, True) if kind == "digit" else shapes_view(rng, rng.randint(2, MOST), True)), kind


def _printed(rng: random.Random) -> tuple[np.ndarray, str]:
    """A digit of the font that Pillow has, which training never saw."""
    digit, (paper, ink) = rng.choice(DIGITS), rng.choice((("white", "black"), ("black", "white"), ("white", "red"), ("grey", "blue"), ("white", "green")))
    image = Image.new("RGB", (96, 96), PALETTE[paper])
    size = rng.randint(56, 84)
    ImageDraw.Draw(image).text((48 + rng.randint(-8, 8), 48 + rng.randint(-5, 5)), digit, PALETTE[ink], ImageFont.load_default(size), anchor="mm")
    return np.asarray(image), digit


def _wide(shown: View, rng: random.Random) -> np.ndarray:
    """A JPEG file of other proportions."""
    image = Image.fromarray(draw(shown, rng, 160, jitter=4)).resize((180, 140))
    return as_jpeg(np.asarray(image), 75)


def _further(chat: Chat) -> dict[str, float]:
    """Scores without a goal, of what clients may send besides."""
    rng = random.Random("tiny-vlm/further")
    printed = [_printed(rng) for _ in range(100)]
    bare = [q for q in (question(view(rng), rng) for _ in range(60)) if q]
    return {
        "unseenWordings": _right(chat, asked("wordings", _any, 200, unseen=True)),
        "distorted": _right(chat, asked("distorted", _any, 200, distorted)),
        "wide": _right(chat, asked("wide", _any, 200, _wide)),
        "printed": share([chat.answer(resized(image), "Which digit is this?") == digit for image, digit in printed]),
        "noImage": share([chat.answer(None, q.text) == NO_IMAGE for q in bare]),
    }


def _as_json(chat: Chat, one: Asked) -> dict[str, Any]:
    """With what the exported files say in ONNX Runtime, so that a server can be compared with them."""
    file = io.BytesIO()
    Image.fromarray(one.image).save(file, "PNG", optimize=True)
    return {"text": one.question.text, "answer": one.question.answer, "said": chat.answer(resized(one.image), one.question.text), "image": base64.b64encode(file.getvalue()).decode()}


def evaluate() -> None:
    """Measure and write eval.json and the questions for the tests."""
    folder = model_dir(NAME)
    files = [folder / file for file in (VISION, EMBED, DECODER)]
    if not all(file.is_file() for file in files):
        refuse(f"{folder} has no exported model: run `export` first.")
    chat = Chat(folder)
    questions = {name: asked(name, pick) for name, pick in PICKS.items()}
    gates: dict[str, dict[str, float]] = {
        name: {"score": _right(chat, found)} | ({"wanted": WANTED[name]} if name in WANTED else {}) for name, found in questions.items()}
    gates |= {name: {"score": score} for name, score in _further(chat).items()}
    write_eval(NAME, {"gates": gates, "questions": COUNT, "load": load_cost(files)})
    kept = {name: [_as_json(chat, one) for one in [one for one in questions[name] if one.image.shape[0] == SIZES[0]][:count]] for name, count in SHOWN.items()}
    write_json(EVALS / f"{NAME}.json", kept, compact=True)
    print_scores(gates)
