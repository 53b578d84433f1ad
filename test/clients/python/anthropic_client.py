"""Anthropic's official client."""

import anthropic
from features import *

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
asked = {'model': CHAT, 'max_tokens': 60}
tool = {
    'name': 'get_weather',
    'description': WEATHER['description'],
    'input_schema': WEATHER_PARAMETERS,
}


@feature('chat')
def _():
    answer = client.messages.create(messages=user(CAPITAL), system='Be brief.', **asked)
    expect(answer.stop_reason, 'end_turn')
    expect(answer.content[0].type, 'text')


@feature('stream')
def _():
    with client.messages.stream(messages=user(CAPITAL), **asked) as stream:
        text = ''.join(stream.text_stream)
        expect(stream.get_final_message().content[0].text, text)


@feature('tools')
def _():
    answer = client.messages.create(
        messages=user(FORECAST), tools=[tool], tool_choice={'type': 'any'}, **asked
    )
    call = answer.content[-1]
    expect([call.type, call.input], ['tool_use', {'city': 'Paris'}])
    result = {'type': 'tool_result', 'tool_use_id': call.id, 'content': 'sunny'}
    messages = [
        *user(FORECAST),
        {'role': 'assistant', 'content': answer.content},
        {'role': 'user', 'content': [result]},
    ]
    expect(client.messages.create(messages=messages, tools=[tool], **asked).type, 'message')


@feature('tool runner')
def _():
    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """Returns the weather."""
        return 'sunny'

    runner = client.beta.messages.tool_runner(
        messages=user(FORECAST), tools=[get_weather], max_iterations=2, **asked
    )
    expect([message.stop_reason for message in runner][0], 'tool_use')


@feature('structured')
def _():
    import pydantic

    class Person(pydantic.BaseModel):
        name: str
        age: int
        city: str

    answer = client.messages.parse(messages=user(PERSON), output_format=Person, **asked)
    expect_person(answer.parsed_output.model_dump())


@feature('errors')
def _():
    error = raises(anthropic.BadRequestError, lambda: client.messages.create(messages=[], **asked))
    expect(error.body['error']['type'], 'invalid_request_error')
    stranger = anthropic.Anthropic(base_url=URL, api_key='wrong')
    raises(anthropic.AuthenticationError, stranger.models.list)


@feature('models')
def _():
    expect(CHAT in [model.id for model in client.models.list()], True)
    expect(client.models.retrieve(CHAT).type, 'model')


@feature('count_tokens')
def _():
    expect(
        client.messages.count_tokens(model=CHAT, messages=user(CAPITAL), tools=[tool]).input_tokens
        > 10,
        True,
    )
