"""DSPy: predictions with its chat and JSON adapters."""

import dspy
from features import *

model = dspy.LM(
    f'openai/{CHAT}',
    api_base=f'{URL}/v1',
    api_key=KEY,
    temperature=0,
    max_tokens=60,
    cache=False,
    num_retries=0,
)


@feature('chat')
def _():
    expect(model(CAPITAL)[0], 'Paris')


@feature('structured')
def _():
    # The adapter sends a JSON Schema made from the signature.
    # LiteLLM knows by the name that the model enforces them.
    named = model.copy(model='openai/gpt-4o-mini')
    with dspy.context(lm=named, adapter=dspy.JSONAdapter()):
        expect(
            isinstance(dspy.Predict('question -> answer: int')(question='12 + 7').answer, int), True
        )


@feature('embeddings')
def _():
    embed = dspy.Embedder(f'openai/{EMBED}', api_base=f'{URL}/v1', api_key=KEY, caching=False)
    expect(len(embed(TEXTS)), 2)
