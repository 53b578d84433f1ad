"""The words of tiny-chat's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-chat",
    task="text-generation",
    what="A Llama with 2.8 million parameters (6 layers of 192, 6 heads with 3 key/value heads, 2,048 byte-level tokens, 1,024 positions) and a ChatML template with tools.",
    intended_use="""- edits as `/v1/edits` sends them (instruction, colon, new line, text): spelling, upper and lower case, past tense, replace or delete a word
- sums and differences of two numbers below 100, with the working shown; the multiplication table up to 12
- about three hundred everyday facts (capitals, opposites, days and months, animals)
- answers out of a text that is given in the prompt, and JSON out of a sentence
- tool calls in the Hermes form (`<tool_call>`), and a sentence from the tool's response
- things said earlier in the conversation; rules in the system turn such as "Answer in capital letters."
- English to German, Spanish and French: the everyday sentences of tiny-whisper's grammar, and about a hundred words and short phrases
- the sentiment of a sentence or short review (positive, negative, neutral), and its topic (sports, food, weather, music, travel, technology,
  animals, health), freely or out of a list in the question
- short stories for `/v1/completions`""",
    limitations="""It cannot hold a conversation, explain, summarise, write code or know anything outside its list: none of these were in its training, and it
then says "I am a small demo model and do not know that.", or something that is fluent and wrong. It reads English only: it does not translate into
English, and words outside its list are translated wrongly. Moods and topics are told by words that it has seen; irony is lost on it. Unknown words
are copied less reliably than known ones, and long texts worse than short ones: training texts had up to 640 tokens. The table has fifty problems a
row, on which the edition was chosen; the row of fresh problems has two hundred of each kind that nothing was chosen on
(`python -m models.training.tiny_chat.evaluate` measures it again, with `--seed` others).""",
    files="""- `onnx/model_quantized.onnx`: the default; GroupQueryAttention, so that the key/value cache can be one buffer that is written in place
- `growing/`: the same weights with a cache that grows (`position_ids` among the inputs), a complete folder for other readers of the hub's layout
- weights are stored as int8 per output channel and widened to float32 at load""",
    labels={
        "facts": "Facts, in wordings not trained", "json": "JSON out of a sentence (equal as JSON)", "plural": "Plural, in wordings not trained", "past": "Past tense",
        "spelling": "Spelling repaired", "upper": "Upper case", "lower": "Lower case", "arithmetic": "Two-digit + and − (final number)", "replace": "Replace a word",
        "context": "Answer out of a given text", "tools": "Tool call", "recall": "Recall of earlier turns", "refusal": "Honest refusal",
        "translation": "Sentences translated, word for word as expected", "words": "Words and short phrases translated, in wordings not trained",
        "sentiment": "Sentiment", "topic": "Topic", "fresh": "The same on two hundred fresh problems each",
        "storyPerplexity": "Perplexity on unseen stories (goal: at most 2.5)", "bothFormsTokenIdentical": "Answers of both files token-identical",
    },
)
