"""The words of tiny-sd's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-sd",
    task="text-to-image",
    what="""A Stable Diffusion layout with 4.5 million parameters: CLIP text encoder (2 layers of 128), U-Net (48 and 112 channels) on 8 × 8 codes of 14 channels, and a
picture code of two small convolutional networks in the place of the VAE. v-prediction, zero terminal SNR, 64 pixels.

The picture code is taught, not discovered: each of its 64 cells tells the colour of the background and, near a thing, the thing's colour, shape, place and
radius; the decoder draws the edges. That is why so small a U-Net learns shapes from two hundred thousand pictures, and why the code knows no other kind of picture.""",
    intended_use="""- flat backgrounds in white, black and grey, and one or two things (circle, square, triangle, star) in eight colours (red, green, blue, yellow, purple, orange,
  cyan, pink), small or big
- repaint a masked part, vary an image""",
    limitations="""Anything but these things and words is ignored or becomes one of them. **Of colours and shapes that training never showed together it gets the shape right but, in
half of the scenes, not all colours**, nor the places. Neighbouring colours (red and orange, red and pink) are sometimes taken for each other, small stars are blunt.
The scores are measured at a guidance of 3, which `models.json` sets for it; at 7.5 colours fall to 0.83 and places to 0.73. Pictures have 64 pixels a side and are enlarged. A picture
from elsewhere is read as flat things on a flat background: in variations of it little more than its main colours stays, and these paler.

The curve is of one training whose recipe was mended on the way; rows before the last are of its averaged weights, not of exported files. At 45 000 pictures the decoder
grew, at 75 000 the questions about captions began: until then left and right were the same to it, and two colours mixed.""",
    files="""- `text_encoder/`, `unet/`, `vae_encoder/`, `vae_decoder/`: `model.onnx` and `config.json` each; `scheduler/`, `tokenizer/`, `model_index.json`
- the U-Net's weights are stored as int8 per output channel, the others as fp16""",
    labels={"background": "Background", "count": "Number of things", "colour": "Colours", "shape": "Shapes", "relation": "Left, right, above, below",
            "heldOutPairs": "Colour and shape pairs never trained", "variationColours": "Variation keeps the colours", "inpaintColour": "Asked colour appears in the repainted half",
            "codeAlone": "Picture code alone"},
)
