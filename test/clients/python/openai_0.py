"""The official client of 2023."""

import io
import json
import time

import openai
from features import *

openai.api_base, openai.api_key = f'{URL}/v1', KEY
asked = {'model': CHAT, 'temperature': 0, 'max_tokens': 60}


@feature('chat')
def _():
    answer = openai.ChatCompletion.create(messages=user(CAPITAL), **asked)
    expect(answer.choices[0].message.content, 'Paris')


@feature('stream')
def _():
    chunks = openai.ChatCompletion.create(messages=user(CAPITAL), stream=True, **asked)
    expect(''.join(chunk.choices[0].delta.get('content') or '' for chunk in chunks), 'Paris')


@feature('tools')
def _():
    answer = openai.ChatCompletion.create(
        messages=user(FORECAST), functions=[WEATHER], function_call={'name': 'get_weather'}, **asked
    )
    call = answer.choices[0].message.function_call
    expect(json.loads(call.arguments), {'city': 'Paris'})
    messages = [
        *user(FORECAST),
        answer.choices[0].message,
        {'role': 'function', 'name': 'get_weather', 'content': 'sunny'},
    ]
    second = openai.ChatCompletion.create(messages=messages, functions=[WEATHER], **asked)
    expect(second.choices[0].finish_reason in ('stop', 'length', 'function_call'), True)


@feature('embeddings')
def _():
    expect(len(openai.Embedding.create(model=EMBED, input=TEXTS).data), 2)


@feature('errors')
def _():
    error = raises(
        openai.error.InvalidRequestError,
        lambda: openai.ChatCompletion.create(model=CHAT, messages=[]),
    )
    expect(error.param, 'messages')
    raises(openai.error.AuthenticationError, lambda: openai.Model.list(api_key='wrong'))


@feature('completions')
def _():
    answer = openai.Completion.create(
        engine='davinci', prompt='The sun is', temperature=0, max_tokens=5
    )
    expect(answer.choices[0].finish_reason, 'length')


@feature('edits')
def _():
    answer = openai.Edit.create(
        model='text-davinci-edit-001', input='I goed home', instruction='Fix the spelling'
    )
    expect(isinstance(answer.choices[0].text, str), True)


@feature('models')
def _():
    expect(CHAT in [model.id for model in openai.Model.list().data], True)


@feature('fine-tuning')
def _():
    file = openai.File.create(file=io.BytesIO(EXAMPLES), purpose='fine-tune')
    listed = lambda job: openai.FineTuningJob.list_events(job, limit=100).data
    for resource in (openai.FineTuningJob, openai.FineTune):
        job = resource.create(model=CHAT, training_file=file.id)
        while job.status not in ('succeeded', 'failed', 'cancelled'):
            time.sleep(0.2)
            job = resource.retrieve(job.id)
        expect(job.status, 'succeeded')
        list_all = getattr(resource, 'stream_events', None) or listed
        expect(any('Step 1/' in event.message for event in list_all(job.id)), True)
        answer = openai.ChatCompletion.create(
            model=job.fine_tuned_model, messages=user('Hi'), max_tokens=4
        )
        expect(answer.model, job.fine_tuned_model)
        expect(openai.Model.delete(job.fine_tuned_model).deleted, True)
