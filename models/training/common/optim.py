"""Muon for weight matrices: momentum whose update is made orthogonal by Newton-Schulz steps."""

from collections.abc import Iterable
from typing import Any

import torch


def orthogonal(gradient: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The nearest semi-orthogonal matrix, approximately (five Newton-Schulz iterations)."""
    x = gradient / (gradient.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


class Muon:
    """Keeps one momentum buffer per matrix."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter], rate: float = 0.02) -> None:
        self.matrices = list(matrices)
        self.rate = rate
        self.momentum = [torch.zeros_like(p) for p in self.matrices]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Apply one update with the rate multiplied by `scale`."""
        for parameter, buffer in zip(self.matrices, self.momentum, strict=True):
            if parameter.grad is None:
                continue
            buffer.mul_(0.95).add_(parameter.grad)
            update = orthogonal(parameter.grad.add(buffer, alpha=0.95))
            shape = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
            parameter.mul_(1 - scale * self.rate * 0.02)
            parameter.add_(update, alpha=-self.rate * scale * shape)

    def state_dict(self) -> dict[str, Any]:
        """The momentum buffers, for a checkpoint."""
        return {"momentum": self.momentum}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the buffers back from a checkpoint."""
        for mine, theirs in zip(self.momentum, state["momentum"], strict=True):
            mine.copy_(theirs)


def split_matrices(
    model: torch.nn.Module, embeddings: tuple[str, ...]
) -> tuple[list[torch.nn.Parameter], list[torch.nn.Parameter]]:
    """Matrices for Muon, everything else (embeddings, gains, biases) for AdamW."""
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        inner = parameter.ndim == 2 and not any(part in name for part in embeddings)
        (matrices if inner else rest).append(parameter)
    return matrices, rest
