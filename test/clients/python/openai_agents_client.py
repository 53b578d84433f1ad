"""OpenAI's Agents SDK with its defaults, over responses and over chat."""

import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel
from agents import Runner, function_tool, set_default_openai_client, set_tracing_disabled
from features import *
from pydantic import BaseModel

client = openai.AsyncOpenAI(base_url=f'{URL}/v1', api_key=KEY)
set_default_openai_client(client)
set_tracing_disabled(True)
called = []


@function_tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    called.append(city)
    return 'sunny'


class Person(BaseModel):
    name: str
    age: int
    city: str


@feature('chat')
def _():
    model = OpenAIChatCompletionsModel(CHAT, client)
    agent = Agent('Clerk', model=model, model_settings=ModelSettings(temperature=0))
    expect(Runner.run_sync(agent, CAPITAL).final_output, 'Paris')


@feature('responses')
def _():
    # Nothing set but the model: its defaults for reasoning and verbosity must run.
    for model in (CHAT, 'gpt-4o'):
        expect(len(Runner.run_sync(Agent('Clerk', model=model), CAPITAL).final_output) > 0, True)


@feature('tools')
def _():
    settings = ModelSettings(temperature=0, tool_choice='required')
    agent = Agent(
        'Clerk',
        model=CHAT,
        tools=[get_weather],
        model_settings=settings,
        tool_use_behavior='stop_on_first_tool',
    )
    expect(Runner.run_sync(agent, FORECAST).final_output, 'sunny')
    expect(called, ['Paris'])


@feature('structured')
def _():
    agent = Agent(
        'Clerk', model=CHAT, output_type=Person, model_settings=ModelSettings(temperature=0)
    )
    expect_person(Runner.run_sync(agent, PERSON).final_output.model_dump())


@feature('stream')
async def _():
    # A client of its own: the shared one belongs to the event loop of the calls above.
    model = OpenAIResponsesModel(CHAT, openai.AsyncOpenAI(base_url=f'{URL}/v1', api_key=KEY))
    result = Runner.run_streamed(Agent('Clerk', model=model), CAPITAL)
    types = [event.type async for event in result.stream_events()]
    expect('raw_response_event' in types, True)
