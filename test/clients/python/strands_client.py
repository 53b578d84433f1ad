"""Strands Agents: its models of OpenAI and Anthropic, and an agent."""

from features import *
from pydantic import BaseModel
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel
from strands.models.openai import OpenAIModel
from strands.models.openai_responses import OpenAIResponsesModel

at = {'client_args': {'base_url': f'{URL}/v1', 'api_key': KEY}, 'model_id': CHAT}
model = OpenAIModel(params={'temperature': 0, 'max_tokens': 60}, **at)


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    calls.append(city)
    return 'sunny'


calls = []


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


def agent(of=model, **options):
    return Agent(model=of, callback_handler=None, **options)


@feature('chat')
def _():
    expect(str(agent()(CAPITAL)), 'Paris')


@feature('stream')
async def _():
    texts = [event.get('data', '') async for event in agent().stream_async(CAPITAL)]
    expect(''.join(texts), 'Paris')


@feature('tools')
def _():
    agent(tools=[get_weather])(FORECAST)
    expect(calls[:1], ['Paris'])


@feature('structured')
def _():
    expect_person(agent()(PERSON, structured_output_model=Person).structured_output.model_dump())


@feature('responses')
def _():
    responses = OpenAIResponsesModel(params={'temperature': 0, 'max_output_tokens': 60}, **at)
    expect(str(agent(responses)(CAPITAL)), 'Paris')


@feature('messages')
def _():
    anthropic = AnthropicModel(
        client_args={'base_url': URL, 'api_key': KEY},
        model_id=CHAT,
        max_tokens=60,
        params={'temperature': 0},
    )
    expect(str(agent(anthropic)(CAPITAL)), 'Paris')
