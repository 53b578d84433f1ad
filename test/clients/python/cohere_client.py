"""Cohere's official client; of its dialect only rerank is served."""

import cohere
from features import *

client = cohere.ClientV2(api_key=KEY, base_url=URL)


@feature('rerank')
def _():
    answer = client.rerank(
        model=RERANK, query='capital of France', documents=TEXTS, top_n=1, max_tokens_per_doc=100
    )
    expect([result.index for result in answer.results], [0])


@feature('errors')
def _():
    error = raises(
        cohere.core.ApiError, lambda: client.rerank(model='none', query='a', documents=TEXTS)
    )
    expect(error.status_code, 404)
    raises(
        cohere.errors.BadRequestError, lambda: client.rerank(model=RERANK, query='a', documents=[])
    )
