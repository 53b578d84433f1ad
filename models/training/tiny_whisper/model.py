"""The network, and the encoder's forward pass for windows shorter than its ten seconds."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

from .features import BANDS
from .vocabulary import SECONDS, Vocabulary

WIDTH, LAYERS, HEADS = 144, 3, 4


def config(vocabulary: Vocabulary) -> WhisperConfig:
    """Three layers of 144 on each side."""
    end = vocabulary.end
    return WhisperConfig(
        vocab_size=vocabulary.size, num_mel_bins=BANDS, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=4 * WIDTH, decoder_ffn_dim=4 * WIDTH, max_source_positions=SECONDS * 50, max_target_positions=128,
        pad_token_id=end, bos_token_id=end, eos_token_id=end, decoder_start_token_id=vocabulary.id("<|startoftranscript|>"), suppress_tokens=None,
        begin_suppress_tokens=None, architectures=["WhisperForConditionalGeneration"], attn_implementation="sdpa",
    )


class Trained(nn.Module):
    """Whisper and the CTC layer that is thrown away after training."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.whisper = WhisperForConditionalGeneration(config(vocabulary))
        # Plain products: the fused kernel's way back takes longer on a CPU.
        self.whisper.set_attn_implementation("eager")
        self.ctc = nn.Linear(WIDTH, vocabulary.size + 1)

    def hear(self, mel: Tensor) -> Tensor:
        """Encoder states of a window of any length up to ten seconds."""
        encoder = self.whisper.model.encoder
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).transpose(1, 2)
        x = x + encoder.embed_positions.weight[: x.shape[1]]
        for layer in encoder.layers:
            out = layer(x, None)
            x = out[0] if isinstance(out, tuple) else out
        return encoder.layer_norm(x)

    def say(self, ids: Tensor, heard: Tensor) -> Tensor:
        """Logits of every position."""
        states = self.whisper.model.decoder(input_ids=ids, encoder_hidden_states=heard, use_cache=False).last_hidden_state
        return self.whisper.proj_out(states)


@torch.no_grad()
def listen(model: Trained, vocabulary: Vocabulary, mel: Tensor, prefixes: list[list[int]], longest: int = 40) -> list[list[int]]:
    """Greedy tokens for a batch whose prefixes have one length."""
    heard, rows = model.hear(mel), torch.tensor(prefixes)
    done = torch.zeros(len(prefixes), dtype=torch.bool)
    for _ in range(longest):
        best = model.say(rows, heard)[:, -1].argmax(-1)
        best[done] = vocabulary.end
        rows = torch.cat([rows, best[:, None]], 1)
        done |= best == vocabulary.end
        if bool(done.all()):
            break
    start = len(prefixes[0])
    return [[i for i in row[start:].tolist() if i != vocabulary.end] for row in rows]
