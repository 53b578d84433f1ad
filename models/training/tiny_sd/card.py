"""The words of tiny-sd's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-sd",
    task="text-to-image",
    what="""A Stable Diffusion layout with 4.5 million parameters: CLIP text encoder (2 layers of 128), U-Net (48 and 112 channels) on 8 × 8 codes of 14 channels, and a
image code of two small convolutional networks in place of the VAE. v-prediction, zero terminal SNR, 64 pixels.

The image code is fixed before training: each of its 64 cells holds the colour of the background and, near a thing, the colour, shape, place and radius of that
thing; the decoder draws the edges. Therefore a U-Net this small can learn shapes from two hundred thousand images, and the code cannot represent other kinds of images.""",
    intended_use="""- flat backgrounds in white, black and grey, and one or two things (circle, square, triangle, star) in eight colours (red, green, blue, yellow, purple, orange,
  cyan, pink), small or big
- repaint a masked part of an image, or create variations of it""",
    limitations="""The model ignores all other things and words, or draws one of these. **For pairs of colour and shape that were not in the training data it gets the shape right, but in
half of the scenes not all colours**, nor the places. It sometimes confuses neighbouring colours (red and orange, red and pink), and small stars are blunt.
The scores are measured at a guidance of 3, which `models.json` sets; at 7.5 colours fall to 0.83 and places to 0.73. Images have 64 pixels a side and are enlarged. Other images
are read as flat things on a flat background: variations of them keep little more than the main colours, and these paler.

The curve shows one training run whose recipe was changed on the way. Rows before the last measure its averaged weights, not exported files. At 45 000 images the decoder
was enlarged, and at 75 000 the questions about captions were added; until then the model did not distinguish left from right and mixed two colours.""",
    files="""- `text_encoder/`, `unet/`, `vae_encoder/`, `vae_decoder/`: `model.onnx` and `config.json` each; `scheduler/`, `tokenizer/`, `model_index.json`
- the U-Net's weights are stored as int8 per output channel, the others as fp16""",
    labels={"background": "Background", "count": "Number of things", "colour": "Colours", "shape": "Shapes", "relation": "Left, right, above, below",
            "heldOutPairs": "Colour and shape pairs never trained", "variationColours": "Variation keeps the colours", "inpaintColour": "Asked colour appears in the repainted half",
            "codeAlone": "Image code alone"},
)
