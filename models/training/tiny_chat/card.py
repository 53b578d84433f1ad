"""The words of tiny-chat's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-chat",
    task="text-generation",
    what="A Llama with 2.8 million parameters (6 layers of 192, 6 heads with 3 key/value heads, 2,048 byte-level tokens, 1,024 positions) and a ChatML template with tools.",
    can="""- edits as `/v1/edits` sends them (instruction, colon, new line, text): spelling, upper and lower case, past tense, replace or delete a word
- sums and differences of two numbers below 100, with the working shown; the multiplication table up to 12
- about three hundred everyday facts (capitals, opposites, days and months, animals)
- answers out of a text that is given in the prompt, and JSON out of a sentence
- tool calls in the Hermes form (`<tool_call>`), and a sentence from the tool's response
- things said earlier in the conversation; rules in the system turn such as "Answer in capital letters."
- short stories for `/v1/completions`""",
    cannot="""It cannot hold a conversation, explain, summarise, translate, judge the mood or the topic of a text, write code or know anything outside its
list: none of these were in its training, and it then says "I am a small demo model and do not know that.", or something that is fluent and wrong.
It reads and writes English only. Unknown words are copied less reliably than known ones, and long texts worse than short ones: training texts had
up to 640 tokens. The table has fifty problems a row, on which the edition was chosen; of 120 fresh ones each it repaired the spelling of 0.81 and
answered 0.83 out of a given text, a little below their goals, replaced 0.89 and wrote 0.95 in capital and 0.92 in small letters.""",
    files="""- `onnx/model_quantized.onnx`: the default; GroupQueryAttention, so that the key/value cache can be one buffer that is written in place
- `growing/`: the same weights with a cache that grows (`position_ids` among the inputs), a complete folder for other readers of the hub's layout
- weights are stored as int8 per output channel and widened to float32 at load""",
    labels={
        "facts": "Facts, in wordings not trained", "json": "JSON out of a sentence (equal as JSON)", "plural": "Plural, in wordings not trained", "past": "Past tense",
        "spelling": "Spelling repaired", "upper": "Upper case", "lower": "Lower case", "arithmetic": "Two-digit + and − (final number)", "replace": "Replace a word",
        "context": "Answer out of a given text", "tools": "Tool call", "recall": "Recall of earlier turns", "refusal": "Honest refusal",
        "storyPerplexity": "Perplexity on unseen stories (goal: at most 2.5)", "bothFormsTokenIdentical": "Answers of both files token-identical",
    },
)
