"""huggingface_hub: its inference client with a URL of its own."""

import json

from features import *
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

client = InferenceClient(base_url=f'{URL}/v1', api_key=KEY)
asked = {'model': CHAT, 'temperature': 0.01, 'max_tokens': 60}


@feature('chat')
def _():
    expect(client.chat_completion(user(CAPITAL), **asked).choices[0].message.content, 'Paris')


@feature('stream')
def _():
    chunks = client.chat.completions.create(messages=user(CAPITAL), stream=True, **asked)
    expect(
        ''.join(chunk.choices[0].delta.content or '' for chunk in chunks if chunk.choices), 'Paris'
    )


@feature('tools')
def _():
    tools = [{'type': 'function', 'function': WEATHER}]
    call = (
        client.chat_completion(user(FORECAST), tools=tools, **asked)
        .choices[0]
        .message.tool_calls[0]
    )
    expect(json.loads(call.function.arguments), {'city': 'Paris'})


@feature('structured')
def _():
    forms = [
        {'type': 'json', 'value': PERSON_SCHEMA},
        {
            'type': 'json_schema',
            'json_schema': {'name': 'person', 'schema': PERSON_SCHEMA, 'strict': True},
        },
    ]
    for form in forms:
        answer = client.chat_completion(user(PERSON), response_format=form, **asked)
        expect_person(json.loads(answer.choices[0].message.content))


@feature('embeddings')
def _():
    embedder = InferenceClient(model=f'{URL}/embed', api_key=KEY)
    expect(embedder.feature_extraction(TEXTS, truncate=True).shape[0], 2)
    comparer = InferenceClient(model=f'{URL}/similarity', api_key=KEY)
    same, other = comparer.sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    expect(round(same, 4) == 1 > other, True)


@feature('errors')
def _():
    error = raises(HfHubHTTPError, lambda: client.chat_completion([], model=CHAT))
    expect(error.response.status_code, 400)
