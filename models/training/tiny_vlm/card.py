"""The words of tiny-vlm's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-vlm",
    task="image-text-to-text",
    what="""A vision encoder with 0.2 million parameters and a Llama with 0.7 million (4 layers of 128, 4 heads with 2 key/value heads, 512 positions), in the layout of
LLaVA-OneVision: every image is resized to 64 × 64 pixels and becomes 9 embeddings.

The image code is fixed before training: the encoder finds up to four things and encodes the colour, the shape and the place of each, once from left to right and once from
top to bottom, together with their number and the colour of the background. Therefore the encoder was trained on images without text, and the decoder on codes without images.
The encoder treats pixels that differ from the border of the image as ink. Heads of the first two layers find the things that a word names by construction, not by training.""",
    intended_use="""- one to four things (circle, square, triangle, star) in the colours of tiny-sd, or one digit, on a background of one colour
- short answers to questions about colours, shapes, counts, positions relative to each other (left, right, above, below) and digits
- captions: "Describe the image."

Training included the system message, several questions in a row and questions without an image. The scores are for scenes with a pair of colour and shape (or digit) that was
not in the training data, in the wordings of training (`models/training/tiny_vlm/wordings.py`); a separate row measures other wordings. Questions without a clear answer were
neither trained nor measured: two things count as beside each other from a distance of 0.16 of the side, `where` needs 1.4 times the distance along one axis as along the other,
and places near the borders between thirds are excluded.""",
    limitations="""**It recognizes nothing else.** The model describes photographs, drawings, text, outlines, shadows, backgrounds of several colours and touching things as shapes on one colour.
Images that are not square are squeezed. A conversation can have one image. The model answers in English to the wordings of its generator; it may mistake other wordings for another
question. Training never placed close colours (red and orange, purple and grey) on each other.""",
    files="""- `onnx/vision_encoder_quantized.onnx`, `onnx/embed_tokens_quantized.onnx`, `onnx/decoder_model_merged_quantized.onnx` (GroupQueryAttention); weights stored as int8
- `preprocessor_config.json`: resizes the whole image to one size""",
    labels={
        "colour": "Colour of a thing", "count": "Count of all things, one to four", "relation": "Left, right, above, below (yes or no, where, what)", "digit": "Digit",
        "whether": "of these, is it left of …, yes or no", "where": "of these, where is it relative to …", "beside": "of these, what is left of …", "kind": "Shape of a thing",
        "background": "Colour of the background", "countSome": "Count of one colour or shape, with none", "exists": "Is there …",
        "place": "Place in the image", "outermost": "Leftmost, rightmost, topmost, lowest", "isDigit": "Is it the digit …", "caption": "Captions, word for word",
        "unseenWordings": "Wordings never trained (colour, count, relation, digit)", "distorted": "Noise, blur, JPEG, other sizes (the same)", "wide": "JPEG of 180 × 140 pixels (the same)",
        "printed": "Printed digits, a typeface never trained", "noImage": "Says that an image is missing", "questions": "Questions of each of the first fifteen rows",
    },
)
