"""The words of tiny-rerank's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-rerank",
    task="text-ranking",
    what="A BERT with 1.3 million parameters that reads query and document together and gives one score; started from tiny-embed.",
    can="""It is meant to sort the ten best of tiny-embed again. The table says how often the right one was first before and after. **A gain below zero means that it has
not learned to compare texts yet and should not be used**: tiny-embed alone is then the better order.""",
    cannot="It has no knowledge of the world and no language but simple English; scores of unlike texts are noise.",
    files="- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `logits` of one value; weights stored as fp16",
    labels={"paraphrase": "Paraphrases", "question": "Questions", "unseenWords": "Unseen words", "passage": "Passages of four sentences", "gain": "Gain in right first places, all queries"},
)
