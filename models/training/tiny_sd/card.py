"""The words of tiny-sd's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-sd",
    task="text-to-image",
    what="""A Stable Diffusion layout with 6.2 million parameters: CLIP text encoder (2 layers of 128), U-Net (80 and 144 channels) on 8 × 8 codes of 16 channels, and a
linear picture code (principal components of 8 × 8 patches) in the place of the VAE. v-prediction, zero terminal SNR, 64 pixels.""",
    can="""- flat backgrounds in white, black and grey; one or two shapes (circle, square, triangle, star) in eight colours, as far as the table says
- repaint a masked part, vary a picture""",
    cannot="""Anything else in a prompt is ignored or becomes a shape. Pictures have 64 pixels a side and are enlarged; the picture code works on patches of eight
pixels, whose borders can be seen. With few pictures seen in training, shapes are rough and the order of two things is left to chance: these come last, after
background, count and colour.""",
    files="""- `text_encoder/`, `unet/`, `vae_encoder/`, `vae_decoder/`: `model.onnx` and `config.json` each; `scheduler/`, `tokenizer/`, `model_index.json`
- the U-Net's weights are stored as int8 per output channel, the others as fp16""",
    labels={"background": "Background", "count": "Number of things", "colour": "Colours", "shape": "Shapes", "relation": "Left, right, above, below",
            "heldOutPairs": "Colour and shape pairs never trained", "variationColours": "Variation keeps the colours", "inpaintColour": "Asked colour appears in the repainted half",
            "codeAlone": "Picture code alone"},
)
