"""Microsoft's Agent Framework: its clients of chat, responses and embeddings."""

from typing import Annotated

from agent_framework import Agent
from agent_framework.openai import (
    OpenAIChatClient,
    OpenAIChatCompletionClient,
    OpenAIEmbeddingClient,
)
from features import *
from pydantic import BaseModel

at = {'api_key': KEY, 'base_url': f'{URL}/v1'}
options = {'temperature': 0, 'max_tokens': 60}
calls = []


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


def get_weather(city: Annotated[str, 'The city.']) -> str:
    """Get the weather of a city."""
    calls.append(city)
    return 'sunny'


def agent(client=OpenAIChatCompletionClient, **more):
    return Agent(client=client(model=CHAT, **at), default_options=options, **more)


@feature('chat')
async def _():
    expect((await agent().run(CAPITAL)).text, 'Paris')


@feature('stream')
async def _():
    pieces = [update.text or '' async for update in agent().run(CAPITAL, stream=True)]
    expect(''.join(pieces), 'Paris')


@feature('tools')
async def _():
    await agent(tools=[get_weather]).run(FORECAST)
    expect(calls[:1], ['Paris'])


@feature('structured')
async def _():
    answer = await agent().run(PERSON, options={'response_format': Person})
    expect_person(answer.value.model_dump())


@feature('embeddings')
async def _():
    made = await OpenAIEmbeddingClient(model=EMBED, **at).get_embeddings(TEXTS)
    expect(len(list(made)), 2)


@feature('responses')
async def _():
    expect((await agent(OpenAIChatClient).run(CAPITAL)).text, 'Paris')
    calls.clear()
    await agent(OpenAIChatClient, tools=[get_weather]).run(FORECAST)
    expect(calls[:1], ['Paris'])
