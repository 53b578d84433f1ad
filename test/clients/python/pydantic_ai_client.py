"""Pydantic AI: agents over chat, responses and messages."""

from features import *
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=f'{URL}/v1', api_key=KEY)
settings = {'temperature': 0, 'max_tokens': 60}
chat = OpenAIChatModel(CHAT, provider=provider, settings=settings)


class Person(BaseModel):
    name: str
    age: int
    city: str


def calls_tool(model):
    called = []
    agent = Agent(model)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        called.append(city)
        return 'sunny'

    agent.run_sync(FORECAST)
    expect(called[0], 'Paris')


@feature('chat')
def _():
    expect(Agent(chat).run_sync(CAPITAL).output, 'Paris')


@feature('stream')
async def _():
    async with Agent(chat).run_stream(CAPITAL) as answer:
        expect([text async for text in answer.stream_text()][-1], 'Paris')


@feature('tools')
def _():
    calls_tool(chat)


@feature('structured')
def _():
    for form in (Person, NativeOutput(Person)):
        expect_person(Agent(chat, output_type=form).run_sync(PERSON).output.model_dump())


@feature('responses')
def _():
    model = OpenAIResponsesModel(CHAT, provider=provider, settings=settings)
    expect(Agent(model).run_sync(CAPITAL).output, 'Paris')
    calls_tool(model)


@feature('errors')
def _():
    error = raises(
        ModelHTTPError, lambda: Agent(OpenAIChatModel('none', provider=provider)).run_sync('a')
    )
    expect(error.status_code, 404)


@feature('messages')
def _():
    model = AnthropicModel(
        CHAT, provider=AnthropicProvider(base_url=URL, api_key=KEY), settings=settings
    )
    expect(Agent(model).run_sync(CAPITAL).output, 'Paris')
    calls_tool(model)
