"""Twenty DDIM steps with guidance on the exported files, judged by reading the pixels."""

import json
import random
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from diffusers import DDIMScheduler
from transformers import CLIPTokenizer

from ..common.errors import refuse
from ..common.layout import write_json
from ..common.loop import read_checkpoint
from ..common.paths import EVALS, model_dir, work_dir
from ..common.report import load_cost, print_scores, share, write_eval
from .code import CHANNELS, SIDE
from .judge import compare, read
from .model import SCHEDULER, token_ids
from .pictures import BACKGROUNDS, SIZE, Scene, draw, scene
from .train import NAME

STEPS, GUIDANCE, COUNT = 20, 3.0, 48
PARTS = ("text_encoder", "unet", "vae_encoder", "vae_decoder")
WANTED = {"background": 0.95, "count": 0.9, "colour": 0.9, "shape": 0.8, "relation": 0.75}


class Painter:
    """The exported folder."""

    def __init__(self, folder: Path) -> None:
        self.run = {name: ort.InferenceSession(str(folder / name / "model.onnx"), providers=["CPUExecutionProvider"]) for name in PARTS}
        self.tokenizer = CLIPTokenizer.from_pretrained(folder / "tokenizer")

    def hidden(self, captions: list[str]) -> np.ndarray:
        """Text encoder states."""
        return self.run["text_encoder"].run(None, {"input_ids": token_ids(self.tokenizer, captions).numpy()})[0]

    def encode(self, pictures: np.ndarray) -> np.ndarray:
        """Codes of pictures in -1…1, [B, 3, H, W]."""
        return self.run["vae_encoder"].run(None, {"sample": pictures.astype(np.float32)})[0][:, :CHANNELS]

    def decode(self, latent: np.ndarray) -> np.ndarray:
        """uint8 pictures [B, H, W, 3]."""
        pixels = self.run["vae_decoder"].run(None, {"latent_sample": latent.astype(np.float32)})[0]
        return np.round((np.clip(pixels, -1, 1) + 1) * 127.5).astype(np.uint8).transpose(0, 2, 3, 1)

    def paint(self, captions: list[str], seed: int, original: np.ndarray | None = None, strength: float = 1.0, keep: np.ndarray | None = None) -> np.ndarray:
        """Latents after all steps; `original` is the start for variations, `keep` marks codes that are blended back."""
        noise = np.random.RandomState(seed).randn(len(captions), CHANNELS, SIDE, SIDE).astype(np.float32)
        hidden = np.concatenate([self.hidden([""] * len(captions)), self.hidden(captions)])
        scheduler = DDIMScheduler(**SCHEDULER)
        scheduler.set_timesteps(STEPS)
        timesteps = scheduler.timesteps[STEPS - round(STEPS * strength) :]
        latent = torch.from_numpy(noise)
        start = None if original is None else torch.from_numpy(original)
        if start is not None and strength < 1:
            latent = scheduler.add_noise(start, latent, timesteps[:1])
        for index, timestep in enumerate(timesteps):
            both = np.concatenate([latent.numpy()] * 2)
            out = self.run["unet"].run(None, {"sample": both, "timestep": np.array(int(timestep)), "encoder_hidden_states": hidden})[0]
            plain, asked = out[: len(captions)], out[len(captions) :]
            latent = scheduler.step(torch.from_numpy(plain + GUIDANCE * (asked - plain)), timestep, latent).prev_sample
            if keep is not None and start is not None:
                later = timesteps[index + 1 : index + 2]
                known = scheduler.add_noise(start, torch.from_numpy(noise), later) if len(later) else start
                latent = torch.where(torch.from_numpy(keep), known, latent)
        return latent.numpy().astype(np.float32)


def _judged(painter: Painter, scenes: list[Scene]) -> dict[str, float]:
    flags: dict[str, list[bool]] = defaultdict(list)
    for image, wanted in zip(painter.decode(painter.paint([s.caption for s in scenes], 7)), scenes, strict=True):
        for name, value in compare(image, wanted).items():
            flags[name].append(value)
    return {name: float(share(values)) for name, values in flags.items()}


def _variation(painter: Painter, scenes: list[Scene]) -> float:
    """Variations with an empty prompt at half strength keep the colours."""
    images = painter.decode(painter.paint([""] * len(scenes), 3, painter.encode(draw(scenes)), 0.5))
    return share([sorted(b.colour for b in read(image)[1]) == sorted(t.colour for t in s.things) for image, s in zip(images, scenes, strict=True)])


def _inpaint(painter: Painter, rng: random.Random) -> float:
    """An empty picture whose right half is repainted gets a thing of the asked colour there, and only there."""
    scenes = [Scene(rng.choice(list(BACKGROUNDS)), (), None, "") for _ in range(16)]
    wanted = [scene(rng, None) for _ in scenes]
    captions = [f"a {w.things[0].colour} {w.things[0].shape} on a {s.background} background" for s, w in zip(scenes, wanted, strict=True)]
    keep = np.zeros((1, 1, SIDE, SIDE), bool)
    keep[..., : SIDE // 2] = True
    images = painter.decode(painter.paint(captions, 5, painter.encode(draw(scenes)), 1.0, keep))
    return share([any(b.colour == w.things[0].colour and b.x > 0.45 for b in read(image)[1]) for image, w in zip(images, wanted, strict=True)])


def _curve(folder: Path, pictures: int, scores: dict[str, dict[str, float]]) -> list[dict[str, float]]:
    """The scores of earlier measurements of this training and of this one."""
    path = folder / "eval.json"
    known = json.loads(path.read_text()).get("curve", []) if path.is_file() else []
    return [row for row in known if row["pictures"] < pictures] + [{"pictures": pictures} | {name: scores[name]["score"] for name in WANTED}]


def evaluate() -> None:
    """Measure and write eval.json and the captions for the tests."""
    folder = model_dir(NAME)
    if not all((folder / part / "model.onnx").is_file() for part in PARTS):
        refuse(f"{folder} has no exported model: run `export` first.")
    painter, rng = Painter(folder), random.Random("evaluate/pictures")
    scenes, unseen = [scene(rng, None) for _ in range(COUNT)], [scene(rng, True) for _ in range(COUNT // 2)]
    scores = {name: {"score": value, "wanted": WANTED[name]} for name, value in _judged(painter, scenes).items()}
    scores["heldOutPairs"] = _judged(painter, unseen)
    scores["variationColours"] = {"score": _variation(painter, scenes[:24]), "wanted": 0.8}
    scores["inpaintColour"] = {"score": _inpaint(painter, rng), "wanted": 0.85}
    code = [compare(image, s) for image, s in zip(painter.decode(painter.encode(draw(scenes))), scenes, strict=True)]
    scores["codeAlone"] = {"colourAndShape": share([c["colour"] and c["shape"] for c in code])}
    path = work_dir(NAME) / "checkpoint.pt"
    pictures = read_checkpoint(path).get("pictures", 0) if path.is_file() else 0
    write_eval(NAME, {"gates": scores, "pictureSize": SIZE, "steps": STEPS, "guidance": GUIDANCE, "training": {"pictures": pictures}, "curve": _curve(folder, pictures, scores),
                      "load": load_cost([folder / part / "model.onnx" for part in PARTS])})
    write_json(EVALS / f"{NAME}.json", {"wanted": WANTED, "steps": STEPS, "guidance": GUIDANCE, "scenes": [asdict(s) for s in [*scenes[:36], *unseen[:14]]]}, compact=True)
    print_scores(scores)
