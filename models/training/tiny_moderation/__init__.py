"""tiny-moderation: a BERT that names the categories of harm in a text."""
