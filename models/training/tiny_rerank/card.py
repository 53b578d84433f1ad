"""The words of tiny-rerank's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-rerank",
    task="text-ranking",
    what="A BERT with 1.3 million parameters that reads query and document together and gives one score; started from tiny-embed.",
    intended_use="""It sorts the ten best of tiny-embed again. The table says how often the right one was first before and after; the gain is the mean over the kinds.
The first layer is given heads that find equal tokens before training begins; without them training did not learn to compare texts at all.""",
    limitations="It has no knowledge of the world and no language but simple English; scores of unlike texts are noise.",
    files="- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `logits` of one value; weights stored as fp16",
    labels={"paraphrase": "Paraphrases", "question": "Questions", "unseenWords": "Unseen words", "passage": "Passages of four sentences", "handWritten": "Questions written by hand", "gain": "Gain in right first places, mean of the kinds"},
)
