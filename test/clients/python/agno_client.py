"""Agno: its OpenAI-like and Anthropic models, and embedders."""

from agno.agent import Agent
from agno.knowledge.embedder.cohere import CohereEmbedder
from agno.knowledge.embedder.openai_like import OpenAILikeEmbedder
from agno.models.anthropic import Claude
from agno.models.openai import OpenAIResponses
from agno.models.openai.like import OpenAILike
from features import *
from pydantic import BaseModel

at = {'id': CHAT, 'base_url': f'{URL}/v1', 'api_key': KEY, 'temperature': 0}
model = OpenAILike(max_tokens=60, **at)
calls = []


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    calls.append(city)
    return 'sunny'


@feature('chat')
def _():
    expect(Agent(model=model).run(CAPITAL).content, 'Paris')


@feature('stream')
def _():
    pieces = [event.content or '' for event in Agent(model=model).run(CAPITAL, stream=True)]
    expect(''.join(piece for piece in pieces if isinstance(piece, str)), 'Paris')


@feature('tools')
def _():
    Agent(model=model, tools=[get_weather]).run(FORECAST)
    expect(calls[:1], ['Paris'])


@feature('structured')
def _():
    expect_person(Agent(model=model, output_schema=Person).run(PERSON).content.model_dump())


@feature('embeddings')
def _():
    like = OpenAILikeEmbedder(id=EMBED, base_url=f'{URL}/v1', api_key=KEY, dimensions=None)
    expect(len(like.get_embedding(TEXTS[0])) > 10, True)
    cohere = CohereEmbedder(id=EMBED, api_key=KEY, client_params={'base_url': URL})
    expect(len(cohere.get_embedding(TEXTS[0])) > 10, True)


@feature('responses')
def _():
    expect(Agent(model=OpenAIResponses(max_output_tokens=60, **at)).run(CAPITAL).content, 'Paris')


@feature('messages')
def _():
    claude = Claude(
        id=CHAT, api_key=KEY, client_params={'base_url': URL}, temperature=0, max_tokens=60
    )
    expect(Agent(model=claude).run(CAPITAL).content, 'Paris')
