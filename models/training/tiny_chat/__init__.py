"""tiny-chat: a Llama of 2.8 million parameters that follows a fixed list of small instructions."""
