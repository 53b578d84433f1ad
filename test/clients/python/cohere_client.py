"""Cohere's official client; of its dialect rerank and embed are served."""

import cohere
from features import *

client = cohere.ClientV2(api_key=KEY, base_url=URL)
older = cohere.Client(api_key=KEY, base_url=URL)


@feature('rerank')
def _():
    answer = client.rerank(
        model=RERANK, query='capital of France', documents=TEXTS, top_n=1, max_tokens_per_doc=100
    )
    expect([result.index for result in answer.results], [0])
    answer = older.rerank(model=RERANK, query='capital of France', documents=TEXTS, top_n=1)
    expect([result.index for result in answer.results], [0])


@feature('embeddings')
def _():
    asked = {'model': EMBED, 'input_type': 'search_document'}
    answer = client.embed(texts=TEXTS, embedding_types=['float', 'base64'], **asked)
    expect([len(answer.embeddings.float_), len(answer.embeddings.base64)], [2, 2])
    part = {'content': [{'type': 'text', 'text': TEXTS[0]}]}
    expect(client.embed(inputs=[part], **asked).embeddings.float_, answer.embeddings.float_[:1])
    # The older client sends 96 texts at a time and joins the answers.
    expect(len(older.embed(texts=TEXTS * 60, **asked).embeddings), 120)
    by_type = older.embed(texts=TEXTS, embedding_types=['float'], **asked)
    expect(by_type.embeddings.float_, answer.embeddings.float_)


@feature('errors')
def _():
    error = raises(
        cohere.core.ApiError, lambda: client.rerank(model='none', query='a', documents=TEXTS)
    )
    expect(error.status_code, 404)
    raises(
        cohere.errors.BadRequestError, lambda: client.rerank(model=RERANK, query='a', documents=[])
    )
