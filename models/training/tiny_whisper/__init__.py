"""tiny-whisper: a Whisper of two million parameters for a small grammar in four languages."""
