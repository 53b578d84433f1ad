"""tiny-tts: the sentences of tiny-whisper's grammar in two voices."""

NAME = "tiny-tts"
