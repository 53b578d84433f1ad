"""LiteLLM's library: the same calls through its OpenAI, Anthropic and Cohere routes."""

import json

import litellm
from features import *

at = {'api_base': f'{URL}/v1', 'api_key': KEY}
asked = {'model': f'openai/{CHAT}', 'temperature': 0, 'max_tokens': 60, **at}
tools = [{'type': 'function', 'function': WEATHER}]


@feature('chat')
def _():
    expect(litellm.completion(messages=user(CAPITAL), **asked).choices[0].message.content, 'Paris')


@feature('stream')
async def _():
    stream = await litellm.acompletion(messages=user(CAPITAL), stream=True, **asked)
    expect(''.join([chunk.choices[0].delta.content or '' async for chunk in stream]), 'Paris')


@feature('tools')
def _():
    call = (
        litellm.completion(messages=user(FORECAST), tools=tools, **asked)
        .choices[0]
        .message.tool_calls[0]
    )
    expect(json.loads(call.function.arguments), {'city': 'Paris'})


@feature('structured')
def _():
    form = {
        'type': 'json_schema',
        'json_schema': {'name': 'person', 'schema': PERSON_SCHEMA, 'strict': True},
    }
    answer = litellm.completion(messages=user(PERSON), response_format=form, **asked)
    expect_person(json.loads(answer.choices[0].message.content))


@feature('embeddings')
def _():
    expect(len(litellm.embedding(model=f'openai/{EMBED}', input=TEXTS, **at).data), 2)


@feature('cohere embeddings')
def _():
    answer = litellm.embedding(
        model=f'cohere/{EMBED}', input=TEXTS, api_base=f'{URL}/v2/embed', api_key=KEY
    )
    expect(len(answer.data), 2)


@feature('responses')
def _():
    answer = litellm.responses(model=f'openai/{CHAT}', input=CAPITAL, temperature=0, **at)
    expect(answer.output[0].content[0].text, 'Paris')


@feature('errors')
def _():
    raises(
        litellm.NotFoundError,
        lambda: litellm.completion(model='openai/none', messages=user('a'), **at),
    )
    raises(litellm.BadRequestError, lambda: litellm.completion(messages=[], **asked))


@feature('messages')
def _():
    answer = litellm.completion(
        model=f'anthropic/{CHAT}', messages=user(CAPITAL), api_base=URL, api_key=KEY
    )
    expect(answer.choices[0].message.content, 'Paris')


@feature('rerank')
def _():
    answer = litellm.rerank(
        model=f'cohere/{RERANK}',
        query='capital of France',
        documents=TEXTS,
        api_base=URL,
        api_key=KEY,
    )
    expect(answer.results[0]['index'], 0)
