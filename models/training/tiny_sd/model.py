"""Text encoder and U-Net in the classes of transformers and diffusers, and the noise schedule."""

from diffusers import DDIMScheduler, UNet2DConditionModel
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from .patches import CHANNELS, PATCH
from .pictures import SIZE

LENGTH, WIDTH = 24, 128
SIDE = SIZE // PATCH
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
        self.unet = UNet2DConditionModel(
            sample_size=SIDE, in_channels=CHANNELS, out_channels=CHANNELS, layers_per_block=1, block_out_channels=(80, 144), norm_num_groups=8,
            cross_attention_dim=WIDTH, attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))

    def read(self, ids: Tensor) -> Tensor:
        """Hidden states of captions."""
        return self.text(input_ids=ids).last_hidden_state

    def forward(self, latent: Tensor, timestep: Tensor, hidden: Tensor) -> Tensor:
        return self.unet(latent, timestep, hidden).sample


def token_ids(tokenizer: CLIPTokenizer, captions: list[str]) -> Tensor:
    """Padded to the encoder's length."""
    return tokenizer(captions, padding="max_length", max_length=LENGTH, truncation=True, return_tensors="pt").input_ids


def noise_levels() -> tuple[Tensor, Tensor]:
    """Square roots of the kept signal and of the noise at each timestep."""
    kept = DDIMScheduler(**SCHEDULER).alphas_cumprod
    return kept.sqrt(), (1 - kept).sqrt()
