"""The words of tiny-chat's card."""

from ..common.card import Card

CARD = Card(
    name="tiny-chat",
    task="text-generation",
    what="A Llama with 2.8 million parameters (6 layers of 192, 6 heads with 3 key/value heads, 2,048 byte-level tokens, 1,024 positions) and a ChatML template with tools.",
    intended_use="""- edits in the format of `/v1/edits` (instruction, colon, new line, text): spelling, upper and lower case, past tense, replacing or deleting a word
- sums and differences of two numbers below 100, with the working shown; the multiplication table up to 12
- about three hundred everyday facts (capitals, opposites, days and months, animals)
- answers from a text in the prompt, and JSON from a sentence
- tool calls in the Hermes format (`<tool_call>`), and a sentence that states the response of the tool
- recall of earlier turns of the conversation; rules in the system message such as "Answer in capital letters."
- English to German, Spanish and French: the everyday sentences of tiny-whisper's grammar, and about a hundred words and short phrases
- the sentiment of a sentence or short review (positive, negative, neutral), and its topic (sports, food, weather, music, travel, technology,
  animals, health), with or without a list of choices in the question
- short stories for `/v1/completions`""",
    limitations="""The model cannot hold a conversation, explain, summarise, write code or answer questions outside its list, because its training data has none of
these. It then says "I am a small demo model and do not know that.", or gives a fluent but wrong answer. It reads English only: it does not translate
into English, and it translates words outside its list wrongly. It recognizes moods and topics by words that it has seen, and misses irony. It copies
unknown words less reliably than known ones, and long texts less reliably than short ones: training texts had up to 640 tokens. Each row of the table
has fifty problems, which were also used to select the released checkpoint. The row of fresh problems has two hundred of each kind that played no part
in the selection (`python -m models.training.tiny_chat.evaluate` measures it again, `--seed` draws other problems).""",
    files="""- `onnx/model_quantized.onnx`: the default; it uses GroupQueryAttention, so that the key/value cache can be one buffer that is written in place
- `growing/`: a complete folder with the same weights and a growing cache (`position_ids` is an input), for other programs that read the layout of the hub
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
