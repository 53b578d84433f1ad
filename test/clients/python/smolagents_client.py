"""smolagents: its OpenAI model, and an agent that calls tools."""

import json

from features import *
from smolagents import OpenAIModel, ToolCallingAgent, tool
from smolagents.models import ChatMessage, MessageRole

model = OpenAIModel(
    model_id=CHAT, api_base=f'{URL}/v1', api_key=KEY, temperature=0, max_tokens=60
)


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: The city.
    """
    return 'sunny'


def said(text):
    content = [{'type': 'text', 'text': text}]
    return [ChatMessage(role=MessageRole.USER, content=content)]


@feature('chat')
def _():
    expect(model.generate(said(CAPITAL)).content, 'Paris')


@feature('stream')
def _():
    expect(''.join(delta.content or '' for delta in model.generate_stream(said(CAPITAL))), 'Paris')


@feature('tools')
def _():
    answer = model.generate(said(FORECAST), tools_to_call_from=[get_weather])
    arguments = answer.tool_calls[0].function.arguments
    expect(json.loads(arguments) if isinstance(arguments, str) else arguments, {'city': 'Paris'})


@feature('structured')
def _():
    form = {
        'type': 'json_schema',
        'json_schema': {'name': 'person', 'schema': PERSON_SCHEMA, 'strict': True},
    }
    expect_person(json.loads(model.generate(said(PERSON), response_format=form).content))


@feature('agent')
def _():
    # The instructions and the tool for the final answer must fit into the context of the model.
    agent = ToolCallingAgent(tools=[get_weather], model=model, max_steps=1, instructions='Be brief.')
    agent.prompt_templates['system_prompt'] = 'Call tools.'
    agent.run(FORECAST)
    expect(len(agent.memory.steps) > 1, True)
