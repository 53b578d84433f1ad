"""tiny-vlm: questions and captions about drawn shapes and digits."""

NAME = "tiny-vlm"
