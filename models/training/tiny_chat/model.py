"""A Llama decoder written out: parameter names are those of `LlamaForCausalLM` in transformers."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """The sizes of the committed edition."""

    vocabulary: int = 2048
    width: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 3
    inner: int = 512
    positions: int = 1024
    theta: float = 10000.0
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        """Values per attention head."""
        return self.width // self.heads


def rotary(shape: Shape) -> tuple[Tensor, Tensor]:
    """cos and sin tables [positions, head / 2]."""
    frequency = 1.0 / shape.theta ** (torch.arange(0, shape.head, 2).double() / shape.head)
    angle = torch.arange(shape.positions).double()[:, None] * frequency
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the two halves of each head by the position's angle."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Norm(nn.Module):
    """RMS norm in float32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.epsilon)


def grouped_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of q [rows, heads, length, head] over fewer key heads, by plain products.

    On short rows the fused kernel's way back takes three times as long on a CPU."""
    rows, heads, length, head = q.shape
    shared = k.shape[1]
    q = q.reshape(rows, shared, -1, head) * head**-0.5
    scores = (q @ k.transpose(-1, -2)).view(rows, heads, length, length)
    later = torch.full((length, length), float("-inf"), dtype=scores.dtype).triu_(1)
    weights = torch.softmax(scores + later, -1, dtype=torch.float32).to(v.dtype)
    return (weights.view(rows, shared, -1, length) @ v).view(rows, heads, length, head)


class Attention(nn.Module):
    """Grouped-query attention over the whole row, causal."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.shape = s
        self.q_proj = nn.Linear(s.width, s.heads * s.head, bias=False)
        self.k_proj = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.v_proj = nn.Linear(s.width, s.kv_heads * s.head, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head, s.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = (
            proj(x).view(rows, length, -1, self.shape.head).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        mixed = grouped_attention(q, k, v)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(s.width, s.inner, bias=False)
        self.up_proj = nn.Linear(s.width, s.inner, bias=False)
        self.down_proj = nn.Linear(s.inner, s.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and feed-forward, each after its norm."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.input_layernorm = Norm(s.width, s.epsilon)
        self.self_attn = Attention(s)
        self.post_attention_layernorm = Norm(s.width, s.epsilon)
        self.mlp = Gated(s)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """Token ids to logits; the output matrix is the embedding."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.shape = s
        self.embed_tokens = nn.Embedding(s.vocabulary, s.width)
        self.layers = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = Norm(s.width, s.epsilon)
        cos, sin = rotary(s)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.04)
        for block in self.layers:
            for matrix in (block.self_attn.o_proj, block.mlp.down_proj):
                nn.init.normal_(matrix.weight, std=0.02 / (2 * s.layers) ** 0.5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]], self.sin[: ids.shape[1]]
        for block in self.layers:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)
