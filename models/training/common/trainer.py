"""What the checkpoints of models that learn by Muon and AdamW hold."""

from typing import Any, ClassVar

import torch

from .optim import Muon


class MuonTrainer:
    """A model, its optimizers, and the number of examples so far under the name `COUNTED`."""

    COUNTED: ClassVar[str]
    model: torch.nn.Module
    muon: Muon
    adam: torch.optim.AdamW

    def snapshot(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "model": self.model.state_dict(),
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            self.COUNTED: getattr(self, self.COUNTED),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.model.load_state_dict(state["model"])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        setattr(self, self.COUNTED, state[self.COUNTED])
