"""tiny-embed: a BERT of 1.3 million parameters that turns a sentence into 128 numbers."""
