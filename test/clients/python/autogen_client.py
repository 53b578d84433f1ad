"""AutoGen: its client of OpenAI and an agent with a tool."""

from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from features import *
from pydantic import BaseModel

INFO = {
    'vision': False,
    'function_calling': True,
    'json_output': True,
    'structured_output': True,
    'family': 'unknown',
}


def model():
    return OpenAIChatCompletionClient(
        model=CHAT, base_url=f'{URL}/v1', api_key=KEY, model_info=INFO, temperature=0, max_tokens=60
    )


class Person(BaseModel):
    name: str
    age: int
    city: str


@feature('chat')
async def _():
    expect((await model().create([UserMessage(content=CAPITAL, source='user')])).content, 'Paris')


@feature('stream')
async def _():
    pieces = [
        piece
        async for piece in model().create_stream([UserMessage(content=CAPITAL, source='user')])
    ]
    expect(pieces[-1].content, 'Paris')


@feature('tools')
async def _():
    async def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return f'sunny in {city}'

    agent = AssistantAgent('clerk', model_client=model(), tools=[get_weather], system_message=None)
    expect((await agent.run(task=FORECAST)).messages[-1].content, 'sunny in Paris')


@feature('structured')
async def _():
    answer = await model().create([UserMessage(content=PERSON, source='user')], json_output=Person)
    expect_person(Person.model_validate_json(answer.content).model_dump())
