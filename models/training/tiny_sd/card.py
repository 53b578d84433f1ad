"""The words of tiny-sd's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-sd",
    task="text-to-image",
    what="""A Stable Diffusion layout with 6.2 million parameters: CLIP text encoder (2 layers of 128), U-Net (80 and 144 channels) on 8 × 8 codes of 16 channels, and a
linear picture code (principal components of 8 × 8 patches) in the place of the VAE. v-prediction, zero terminal SNR, 64 pixels.""",
    can="""- flat backgrounds in white, black and grey, and one or two things in eight colours (red, green, blue, yellow, purple, orange, cyan, pink)
- repaint a masked part, vary a picture""",
    cannot="""**Shapes are rough and rarely the asked one, and left, right, above and below are left to chance.** The curve shows the order in which these are learned:
background and count first, then colour, then shape, then relation; by our estimate shape needs half a million pictures or more and relation beyond a million,
which the processor time of this edition did not reach. Anything else in a prompt is ignored or becomes a thing. Pictures have 64 pixels a side and are enlarged;
the picture code works on patches of eight pixels, whose borders can be seen.""",
    files="""- `text_encoder/`, `unet/`, `vae_encoder/`, `vae_decoder/`: `model.onnx` and `config.json` each; `scheduler/`, `tokenizer/`, `model_index.json`
- the U-Net's weights are stored as int8 per output channel, the others as fp16""",
    labels={"background": "Background", "count": "Number of things", "colour": "Colours", "shape": "Shapes", "relation": "Left, right, above, below",
            "heldOutPairs": "Colour and shape pairs never trained", "variationColours": "Variation keeps the colours", "inpaintColour": "Asked colour appears in the repainted half",
            "codeAlone": "Picture code alone"},
)
