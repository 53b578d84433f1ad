"""The words of tiny-rerank's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-rerank",
    task="text-ranking",
    what="A BERT with 1.3 million parameters that reads query and document together and returns one score; training started from the weights of tiny-embed.",
    intended_use="""The model reorders the ten best results of tiny-embed. The table shows how often the right one was first before and after; the gain is the mean over the kinds.
Before training, two heads of the first layer are set to find equal tokens; without them, training did not learn to compare texts at all.""",
    limitations="The model has no knowledge of the world and reads only simple English. Scores of texts unlike its training data are noise.",
    files="- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `logits` of one value; weights stored as fp16",
    labels={"paraphrase": "Paraphrases", "question": "Questions", "unseenWords": "Unseen words", "passage": "Passages of four sentences", "handWritten": "Questions written by hand", "gain": "Gain in right first places, mean of the kinds"},
)
