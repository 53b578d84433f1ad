"""tiny-rerank: a BERT that reads query and document together and gives one score."""
