"""The official client from version 1 on."""

import json
import time

import openai
import pydantic
from features import *

client = openai.OpenAI(base_url=f'{URL}/v1', api_key=KEY, max_retries=0)
asked = {'model': CHAT, 'temperature': 0, 'max_tokens': 60}
tools = [{'type': 'function', 'function': WEATHER}]


@feature('chat')
def _():
    answer = client.chat.completions.create(messages=user(CAPITAL), **asked)
    expect(answer.choices[0].message.content, 'Paris')
    expect(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)


@feature('stream')
async def _():
    async with openai.AsyncOpenAI(base_url=f'{URL}/v1', api_key=KEY) as asynchronous:
        stream = await asynchronous.chat.completions.create(
            messages=user(CAPITAL), stream=True, stream_options={'include_usage': True}, **asked
        )
        chunks = [chunk async for chunk in stream]
    expect(
        ''.join(chunk.choices[0].delta.content or '' for chunk in chunks if chunk.choices), 'Paris'
    )
    expect(chunks[-1].usage.completion_tokens > 0, True)


@feature('tools')
def _():
    for choice in ('auto', {'type': 'function', 'function': {'name': 'get_weather'}}):
        answer = client.chat.completions.create(
            messages=user(FORECAST), tools=tools, tool_choice=choice, **asked
        )
        call = answer.choices[0].message.tool_calls[0]
        expect(json.loads(call.function.arguments), {'city': 'Paris'})
        result = {'role': 'tool', 'tool_call_id': call.id, 'content': 'sunny'}
        messages = [*user(FORECAST), answer.choices[0].message, result]
        second = client.chat.completions.create(messages=messages, tools=tools, **asked)
        expect(isinstance(second.choices[0].message.content, str), True)


@feature('structured')
def _():
    form = {
        'type': 'json_schema',
        'json_schema': {'name': 'person', 'schema': PERSON_SCHEMA, 'strict': True},
    }
    answer = client.chat.completions.create(messages=user(PERSON), response_format=form, **asked)
    expect_person(json.loads(answer.choices[0].message.content))


@feature('embeddings')
def _():
    answer = client.embeddings.create(model=EMBED, input=TEXTS)
    expect([len(row.embedding) for row in answer.data], [len(answer.data[0].embedding)] * 2)


@feature('errors')
def _():
    error = raises(
        openai.BadRequestError, lambda: client.chat.completions.create(model=CHAT, messages=[])
    )
    expect(error.param, 'messages')
    raises(
        openai.NotFoundError,
        lambda: client.chat.completions.create(model='none', messages=user('a')),
    )
    stranger = openai.OpenAI(base_url=f'{URL}/v1', api_key='wrong')
    raises(openai.AuthenticationError, stranger.models.list)


if hasattr(client, 'responses'):

    @feature('responses')
    def _():
        answer = client.responses.create(model=CHAT, input=CAPITAL, temperature=0)
        expect(answer.output_text, 'Paris')
        more = client.responses.create(
            model=CHAT, input='And of Italy?', previous_response_id=answer.id
        )
        expect(more.status, 'completed')
        events = [
            event.type for event in client.responses.create(model=CHAT, input=CAPITAL, stream=True)
        ]
        expect([events[0], events[-1]], ['response.created', 'response.completed'])
        call = client.responses.create(
            model=CHAT,
            temperature=0,
            input=FORECAST,
            tools=[{'type': 'function', 'strict': False, **WEATHER}],
        )
        expect(json.loads(call.output[0].arguments), {'city': 'Paris'})


@feature('completions')
def _():
    answer = client.completions.create(
        model=CHAT, prompt='The sun is', temperature=0, max_tokens=5, logprobs=2
    )
    expect(len(answer.choices[0].logprobs.tokens), 5)


@feature('models')
def _():
    expect(CHAT in [model.id for model in client.models.list()], True)


@feature('files')
def _():
    line = {
        'custom_id': 'a',
        'method': 'POST',
        'url': '/v1/embeddings',
        'body': {'model': EMBED, 'input': 'a'},
    }
    made = client.files.create(file=('batch.jsonl', json.dumps(line).encode()), purpose='batch')
    expect(json.loads(client.files.content(made.id).text), line)
    batch = client.batches.create(
        input_file_id=made.id, endpoint='/v1/embeddings', completion_window='24h'
    )
    expect(batch.object, 'batch')
    client.batches.cancel(batch.id)
    expect(client.files.delete(made.id).deleted, True)


if hasattr(client, 'uploads') and hasattr(client.uploads, 'upload_file_chunked'):

    @feature('uploads')
    def _():
        data = bytes(range(256)) * 40
        made = client.uploads.upload_file_chunked(
            file=data,
            filename='a.bin',
            bytes=len(data),
            mime_type='application/octet-stream',
            purpose='user_data',
            part_size=4096,
        )
        expect(made.status, 'completed')
        expect(client.files.wait_for_processing(made.file.id).status, 'processed')
        expect(client.files.content(made.file.id).read() == data, True)
        client.files.delete(made.file.id)


@feature('helpers')
def _():
    class Person(pydantic.BaseModel):
        name: str
        age: int
        city: str

    chats = getattr(client.chat.completions, 'parse', None) or client.beta.chat.completions.parse
    parsed = chats(messages=user(PERSON), response_format=Person, **asked)
    expect(type(parsed.choices[0].message.parsed), Person)
    if hasattr(client, 'responses'):
        answer = client.responses.parse(
            model=CHAT, input=PERSON, text_format=Person, max_output_tokens=80, temperature=0
        )
        expect(type(answer.output_parsed), Person)
        with client.responses.stream(model=CHAT, input=CAPITAL, temperature=0) as stream:
            expect([event.type for event in stream][-1], 'response.completed')
            expect(stream.get_final_response().output_text, 'Paris')
    if hasattr(client.chat.completions, 'stream'):
        with client.chat.completions.stream(messages=user(CAPITAL), **asked) as stream:
            expect(stream.get_final_completion().choices[0].message.content, 'Paris')
    raw = client.chat.completions.with_raw_response.create(messages=user(CAPITAL), **asked)
    expect(raw.headers['x-request-id'], 'req_')
    expect(raw.parse().choices[0].message.content, 'Paris')
    with client.chat.completions.with_streaming_response.create(
        messages=user(CAPITAL), **asked
    ) as response:
        expect(''.join(response.iter_text()), 'Paris')


@feature('images')
def _():
    answer = client.images.generate(
        model='tiny-sd', prompt='A red circle.', response_format='b64_json', size='256x256'
    )
    expect(len(answer.data[0].b64_json) > 100, True)


@feature('moderations')
def _():
    answer = client.moderations.create(input=['I will hurt you.', 'What a nice day!'])
    expect([result.flagged for result in answer.results], [True, False])
    expect(answer.results[0].categories.violence, True)


@feature('fine-tuning')
def _():
    file = client.files.create(file=('examples.jsonl', EXAMPLES), purpose='fine-tune')
    jobs = client.fine_tuning.jobs
    job = jobs.create(
        model=CHAT, training_file=file.id, suffix='mill', hyperparameters={'n_epochs': 2}
    )
    while job.status not in ('succeeded', 'failed', 'cancelled'):
        time.sleep(0.2)
        job = jobs.retrieve(job.id)
    expect(job.status, 'succeeded')
    expect(any(event.type == 'metrics' for event in jobs.list_events(job.id)), True)
    expect([each.id for each in jobs.list(limit=1).data], [job.id])
    expect(all(each.step_number > 0 for each in jobs.checkpoints.list(job.id)), True)
    answer = client.chat.completions.create(
        model=job.fine_tuned_model, messages=user('Hi'), max_tokens=4
    )
    expect(answer.model, job.fine_tuned_model)
    expect(client.models.delete(job.fine_tuned_model).deleted, True)
