"""Voyage's client."""

import voyageai
import voyageai.error
from features import *

client = voyageai.Client(api_key=KEY, base_url=f'{URL}/v1', max_retries=0)


@feature('embeddings')
def _():
    answer = client.embed(TEXTS, model=EMBED, input_type='document')
    expect([len(row) for row in answer.embeddings], [len(answer.embeddings[0])] * 2)
    packed = {'model': EMBED, 'input_type': 'query', 'output_dtype': 'int8'}
    refusal = raises(voyageai.error.VoyageError, lambda: client.embed(TEXTS, **packed))
    expect(str(refusal), 'output_dtype')
    expect(answer.total_tokens > 0, True)


@feature('rerank')
def _():
    answer = client.rerank(CAPITAL, TEXTS, model=RERANK, top_k=1)
    expect([(each.index, each.document) for each in answer.results], [(0, TEXTS[0])])


@feature('errors')
def _():
    unknown = raises(voyageai.error.VoyageError, lambda: client.embed(TEXTS, model='none'))
    expect('does not exist' in str(unknown), True)
    stranger = voyageai.Client(api_key='wrong', base_url=f'{URL}/v1', max_retries=0)
    refusal = raises(voyageai.error.AuthenticationError, lambda: stranger.embed(TEXTS, model=EMBED))
    expect(str(refusal).startswith('Incorrect API key'), True)
