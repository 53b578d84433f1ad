"""The words of tiny-rerank's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-rerank",
    task="text-ranking",
    what="A BERT with 1.3 million parameters that reads query and document together and gives one score; started from tiny-embed.",
    can="- sort the ten best of tiny-embed again, which puts the right one first more often (the table says how often before and after)",
    cannot="It has no knowledge of the world and no language but simple English; scores of unlike texts are noise.",
    files="- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `logits` of one value; weights stored as fp16",
    labels={"paraphrase": "Paraphrases", "question": "Questions", "unseenWords": "Unseen words", "passage": "Passages of four sentences", "gain": "Gain in right first places, all queries"},
)
