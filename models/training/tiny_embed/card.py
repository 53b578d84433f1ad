"""The words of tiny-embed's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-embed",
    task="sentence-similarity",
    what="A BERT with 1.3 million parameters (4 layers of 128, lower-case WordPiece of 3,000) whose mean-pooled, normalised output is a vector of 128 numbers.",
    intended_use="""- find the paraphrase of a sentence (synonyms, passive, another word order) among near-duplicates
- find the sentence that answers a question about who, what, where and when
- match words that were not in the training data, like a keyword search""",
    limitations="""The model has no knowledge of the world and reads only simple English. On text unlike its training data it behaves like keyword matching.
Similarities are not calibrated across topics.""",
    files="""- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `last_hidden_state`; weights stored as fp16
- `modules.json`, `1_Pooling/config.json`: pooling and normalisation in the format of sentence-transformers""",
    labels={"paraphrase": "Paraphrase first of 200 (40 families of 5 near-duplicates)", "question": "Answer among the first 5 of 200", "unseenWords": "Unseen words, first of 200",
            "handWritten": "20 hand-written questions, first of 20"},
)
