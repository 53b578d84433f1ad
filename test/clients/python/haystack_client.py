"""Haystack: generators and embedders of OpenAI, Cohere and Hugging Face."""

import json

from features import *
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

at = {'api_key': Secret.from_token(KEY), 'api_base_url': f'{URL}/v1'}
kwargs = {'temperature': 0, 'max_tokens': 60}


def ask(text, **options):
    made = OpenAIChatGenerator(
        model=CHAT, generation_kwargs={**kwargs, **options.pop('more', {})}, **at, **options
    )
    return made.run([ChatMessage.from_user(text)])['replies'][0]


@feature('chat')
def _():
    expect(ask(CAPITAL).text, 'Paris')


@feature('stream')
def _():
    pieces = []
    ask(CAPITAL, streaming_callback=lambda chunk: pieces.append(chunk.content or ''))
    expect(''.join(pieces), 'Paris')


@feature('tools')
def _():
    tool = Tool(function=lambda city: 'sunny', **WEATHER)
    expect(ask(FORECAST, tools=[tool]).tool_calls[0].arguments, {'city': 'Paris'})


@feature('structured')
def _():
    form = {
        'type': 'json_schema',
        'json_schema': {'name': 'person', 'schema': PERSON_SCHEMA, 'strict': True},
    }
    expect_person(json.loads(ask(PERSON, more={'response_format': form}).text))


@feature('embeddings')
def _():
    expect(len(OpenAITextEmbedder(model=EMBED, **at).run('a')['embedding']) > 10, True)
