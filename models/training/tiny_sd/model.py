"""Text encoder and U-Net in the classes of transformers and diffusers, the picture code, and the noise schedule."""

import numpy as np
import torch
from diffusers import DDIMScheduler, UNet2DConditionModel
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from .captions import CHOICES
from .code import CHANNELS, SIDE, PictureCode

LENGTH, WIDTH = 24, 128
SCHEDULER = {
    "num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "prediction_type": "v_prediction",
    "rescale_betas_zero_snr": True, "timestep_spacing": "trailing", "clip_sample": False, "set_alpha_to_one": True, "steps_offset": 0,
}


class Networks(nn.Module):
    """What is trained together."""

    def __init__(self, tokenizer: CLIPTokenizer) -> None:
        super().__init__()
        self.text = CLIPTextModel(CLIPTextConfig(
            vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=4 * WIDTH, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=LENGTH,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, hidden_act="quick_gelu"))
        # The caption reaches every residual block as scale and shift beside the time, and words the attention of the lower level.
        self.unet = UNet2DConditionModel(
            sample_size=SIDE, in_channels=CHANNELS, out_channels=CHANNELS, layers_per_block=1, block_out_channels=(48, 112), norm_num_groups=8,
            cross_attention_dim=WIDTH, attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), resnet_time_scale_shift="scale_shift", addition_embed_type="text",
            addition_embed_type_num_heads=4)
        self.code = PictureCode()
        self.answers = nn.Linear(self.unet.add_embedding.proj.out_features, sum(CHOICES))  # only while training

    def read(self, ids: Tensor) -> Tensor:
        """Hidden states of captions."""
        return self.text(input_ids=ids).last_hidden_state

    def answer(self, hidden: Tensor) -> Tensor:
        """Scores for the questions about a caption, from the text as the U-Net pools it."""
        return self.answers(self.unet.add_embedding(hidden))

    def forward(self, latent: Tensor, timestep: Tensor, hidden: Tensor) -> Tensor:
        return self.unet(latent, timestep, hidden).sample


def token_ids(tokenizer: CLIPTokenizer, captions: list[str]) -> Tensor:
    """Padded to the encoder's length."""
    return tokenizer(captions, padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt").input_ids


def noise_levels() -> tuple[Tensor, Tensor]:
    """Square roots of the kept signal and of the noise at each timestep."""
    kept = DDIMScheduler(**SCHEDULER).alphas_cumprod
    return kept.sqrt(), (1 - kept).sqrt()


class LouderUnet(nn.Module):
    """The U-Net for codes that are `loudness` times what it was trained on, on the same noise schedule.

    A louder code under the same noise is the trained code at an earlier timestep: x / c with c² = (a k)² + s² has the signal a k / c and the
    noise s / c. From what the U-Net says there follow the code and the noise, and from these v of the louder code.
    """

    def __init__(self, unet: UNet2DConditionModel, loudness: float) -> None:
        super().__init__()
        self.unet = unet
        a, s = (level.double() for level in noise_levels())
        c = ((a * loudness) ** 2 + s**2).sqrt()
        signal, noise = a * loudness / c, s / c
        trained = np.interp(-signal.numpy(), -a.numpy(), np.arange(len(a)))
        for name, value in {"shrink": 1 / c, "time": trained, "by_sample": a * noise - s * loudness * signal, "by_said": a * signal + s * loudness * noise}.items():
            self.register_buffer(name, torch.as_tensor(value).float())

    def forward(self, sample: Tensor, timestep: Tensor, hidden: Tensor) -> Tensor:
        at = timestep.reshape(1)
        x = sample * self.shrink[at].reshape(1, 1, 1, 1)
        said = self.unet(x, self.time[at].expand(sample.shape[0]), hidden).sample
        return x * self.by_sample[at].reshape(1, 1, 1, 1) + said * self.by_said[at].reshape(1, 1, 1, 1)
