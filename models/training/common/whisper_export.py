"""A Whisper model as ONNX files with the names and shapes of the hub.

The merged decoder has no `If` node: the keys and values of cross-attention are
Concat(past, projection(encoder_hidden_states[:, :n])) with n = 0 when `use_cache_branch` is true.
"""

import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OPSET = 17


class EncoderForm(nn.Module):
    """input_features -> last_hidden_state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.model.encoder
        self.heads = model.config.encoder_attention_heads

    def forward(self, input_features: Tensor) -> Tensor:
        e = self.encoder
        x = F.gelu(e.conv2(F.gelu(e.conv1(input_features)))).transpose(1, 2) + e.embed_positions.weight
        for layer in e.layers:
            y, a = layer.self_attn_layer_norm(x), layer.self_attn
            x = x + attend(a, *(split_heads(p(y), self.heads) for p in (a.q_proj, a.k_proj, a.v_proj)))
            x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
        return e.layer_norm(x)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, D] to [B, H, T, D / H]."""
    return x.view(x.shape[0], -1, heads, x.shape[-1] // heads).transpose(1, 2)


def attend(attention: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Scaled dot products in plain operators, so that any runtime can run them."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores if bias is None else scores + bias
    return attention.out_proj((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))


class DecoderForm(nn.Module):
    """The decoder's layers over given caches; the subclasses decide where the cross cache comes from."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model.model.decoder
        self.heads = model.config.decoder_attention_heads

    def run(self, input_ids: Tensor, past: list[Tensor], cross: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """`past` and `cross` hold key and value of each layer."""
        d = self.decoder
        length = past[0].shape[2]
        positions = torch.arange(input_ids.shape[1]) + length
        x = d.embed_tokens(input_ids) + d.embed_positions.weight[positions]
        seen = torch.arange(length + input_ids.shape[1])[None] <= positions[:, None]
        bias = torch.where(seen, torch.tensor(0.0), torch.tensor(-1e9))
        present = []
        for index, layer in enumerate(d.layers):
            a, y = layer.self_attn, layer.self_attn_layer_norm(x)
            k = torch.cat([past[2 * index], split_heads(a.k_proj(y), self.heads)], 2)
            v = torch.cat([past[2 * index + 1], split_heads(a.v_proj(y), self.heads)], 2)
            present += [k, v]
            x = x + attend(a, split_heads(a.q_proj(y), self.heads), k, v, bias)
            c, y = layer.encoder_attn, layer.encoder_attn_layer_norm(x)
            x = x + attend(c, split_heads(c.q_proj(y), self.heads), cross[2 * index], cross[2 * index + 1])
            x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
        return F.linear(d.layer_norm(x), d.embed_tokens.weight), present

    def project(self, hidden: Tensor) -> list[Tensor]:
        """Keys and values of cross-attention."""
        parts = []
        for layer in self.decoder.layers:
            c = layer.encoder_attn
            parts += [split_heads(c.k_proj(hidden), self.heads), split_heads(c.v_proj(hidden), self.heads)]
        return parts


def interleave(own: list[Tensor], cross: list[Tensor]) -> list[Tensor]:
    """decoder.key, decoder.value, encoder.key, encoder.value of each layer."""
    return [t for i in range(0, len(own), 2) for t in (own[i], own[i + 1], cross[i], cross[i + 1])]


def separate(past: tuple[Tensor, ...]) -> tuple[list[Tensor], list[Tensor]]:
    """The inverse of `interleave`."""
    own = [t for i in range(0, len(past), 4) for t in past[i : i + 2]]
    return own, [t for i in range(0, len(past), 4) for t in past[i + 2 : i + 4]]


class Merged(DecoderForm):
    """One graph for the first and the later calls."""

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor, use_cache_branch: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        own, cross = separate(past)
        count = (1 - use_cache_branch.long()[0]) * encoder_hidden_states.shape[1]
        hidden = torch.index_select(encoder_hidden_states, 1, torch.arange(count))
        cross = [torch.cat([old, new], 2) for old, new in zip(cross, self.project(hidden), strict=True)]
        logits, present = self.run(input_ids, own, cross)
        return (logits, *interleave(present, cross))


class First(DecoderForm):
    """decoder_model: no past yet."""

    def forward(self, input_ids: Tensor, encoder_hidden_states: Tensor) -> tuple[Tensor, ...]:
        cross = self.project(encoder_hidden_states)
        empty = [t[:, :, :0] for t in cross]
        logits, present = self.run(input_ids, empty, cross)
        return (logits, *interleave(present, cross))


class Later(DecoderForm):
    """decoder_with_past_model: the cross cache is read only, so it is no output."""

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        own, cross = separate(past)
        logits, present = self.run(input_ids, own, cross)
        return (logits, *present)


def cache_parts(layers: int) -> list[str]:
    """`0.decoder.key` and so on, in the hub's order."""
    return [f"{i}.{side}.{kind}" for i in range(layers) for side in ("decoder", "encoder") for kind in ("key", "value")]


def _cache_axes(prefix: str, parts: list[str], suffix: str) -> dict[str, dict[int, str]]:
    sides = {part: part.split(".")[1] for part in parts}
    return {f"{prefix}.{part}": {0: "batch_size", 2: f"{side}_sequence_length{suffix}"} for part, side in sides.items()}


def _write(module: nn.Module, example: tuple[Any, ...], path: Path, inputs: list[str], outputs: list[str], axes: dict[str, dict[int, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(module.eval(), example, str(path), dynamo=False, opset_version=OPSET, input_names=inputs, output_names=outputs, dynamic_axes=axes)


def export_encoder(model: Any, path: Path) -> None:
    """encoder_model.onnx."""
    frames = 2 * model.config.max_source_positions
    axes = {"input_features": {0: "batch_size"}, "last_hidden_state": {0: "batch_size"}}
    _write(EncoderForm(model), (torch.randn(1, model.config.num_mel_bins, frames),), path, ["input_features"], ["last_hidden_state"], axes)


def export_merged(model: Any, path: Path) -> None:
    """decoder_model_merged.onnx."""
    c = model.config
    parts = cache_parts(c.decoder_layers)
    pasts, presents = [f"past_key_values.{p}" for p in parts], [f"present.{p}" for p in parts]
    past = [torch.randn(1, c.decoder_attention_heads, 3, c.d_model // c.decoder_attention_heads) for _ in parts]
    axes = {"input_ids": {0: "batch_size", 1: "decoder_sequence_length"}, "encoder_hidden_states": {0: "batch_size", 1: "encoder_sequence_length"},
            "logits": {0: "batch_size", 1: "decoder_sequence_length"},
            **_cache_axes("past_key_values", parts, "_past"), **_cache_axes("present", parts, "_out")}
    example = (torch.tensor([[1, 2]]), torch.randn(1, c.max_source_positions, c.d_model), torch.tensor([False]), *past)
    _write(Merged(model), example, path, ["input_ids", "encoder_hidden_states", "use_cache_branch", *pasts], ["logits", *presents], axes)


def export_split(model: Any, first: Path, later: Path) -> None:
    """decoder_model.onnx and decoder_with_past_model.onnx."""
    c = model.config
    parts = cache_parts(c.decoder_layers)
    own = [part for part in parts if ".decoder." in part]
    rows = {"input_ids": {0: "batch_size", 1: "decoder_sequence_length"}, "logits": {0: "batch_size", 1: "decoder_sequence_length"}}
    hidden = torch.randn(1, c.max_source_positions, c.d_model)
    _write(First(model), (torch.tensor([[1, 2, 3]]), hidden), first, ["input_ids", "encoder_hidden_states"], ["logits", *(f"present.{p}" for p in parts)],
           {**rows, "encoder_hidden_states": {0: "batch_size", 1: "encoder_sequence_length"}, **_cache_axes("present", parts, "")})
    past = [torch.randn(1, c.decoder_attention_heads, 3, c.d_model // c.decoder_attention_heads) for _ in parts]
    _write(Later(model), (torch.tensor([[1]]), *past), later, ["input_ids", *(f"past_key_values.{p}" for p in parts)],
           ["logits", *(f"present.{p}" for p in own)], {**rows, **_cache_axes("past_key_values", parts, "_past"), **_cache_axes("present", own, "_out")})
