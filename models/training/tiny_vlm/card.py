"""The words of tiny-vlm's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-vlm",
    task="image-text-to-text",
    what="""A vision encoder with 0.2 million parameters and a Llama with 0.7 million (4 layers of 128, 4 heads with 2 key/value heads, 512 positions), in the layout of
LLaVA-OneVision: every image is resized to 64 × 64 pixels and becomes 9 embeddings.

The image code is taught, not discovered: the encoder finds up to four things, and tells of each its colour, its shape and its place, from left to right and from top to
bottom, with their number and the colour of the background. So the encoder learned from images without text, and the decoder from codes without images. The encoder takes for
ink what differs from the border of the image. Heads of the first two layers find the things that a word names by construction, not by training.""",
    intended_use="""- one to four things (circle, square, triangle, star) in the colours of tiny-sd, or one digit, on a background of one colour
- short answers to questions: colours, shapes, counts, what is left of, right of, above or below what, digits
- captions: "Describe the image."

The system turn, several questions in a row and questions without an image occurred in training. Scores are of scenes with a pair of colour and shape (or digit) that training
never had, in the wordings of training (`models/training/tiny_vlm/wordings.py`); other wordings have a row of their own. Questions without a clear answer were neither
learned nor measured: one thing is beside another from 0.16 of the side on, `where` needs 1.4 times as much along one axis as along the other, and places near the borders of
thirds are left out.""",
    limitations="""**It sees nothing else.** Photographs, drawings, text, outlines, shadows, backgrounds of several colours and things that touch are described as shapes on one colour.
Images of other proportions are squeezed. It reads one image in a conversation. It answers in English, in the wordings of its generator; others may get the answer to some other question.
Colours that are close (red and orange, purple and grey) were never on each other in training.""",
    files="""- `onnx/vision_encoder_quantized.onnx`, `onnx/embed_tokens_quantized.onnx`, `onnx/decoder_model_merged_quantized.onnx` (GroupQueryAttention); weights stored as int8
- `preprocessor_config.json`: the whole image in one size""",
    labels={
        "colour": "Colour of a thing", "count": "Count of all things, one to four", "relation": "Left, right, above, below (yes or no, where, what)", "digit": "Digit",
        "whether": "of these, is it left of …, yes or no", "where": "of these, where is it relative to …", "beside": "of these, what is left of …", "kind": "Shape of a thing",
        "background": "Colour of the background", "countSome": "Count of one colour or shape, with none", "exists": "Is there …",
        "place": "Place in the image", "outermost": "Leftmost, rightmost, topmost, lowest", "isDigit": "Is it the digit …", "caption": "Captions, word for word",
        "unseenWordings": "Wordings never trained (colour, count, relation, digit)", "distorted": "Noise, blur, JPEG, other sizes (the same)", "wide": "JPEG of 180 × 140 pixels (the same)",
        "printed": "Printed digits, a typeface never trained", "noImage": "Says that an image is missing", "questions": "Questions of each of the first fifteen rows",
    },
)
