"""The report of a client's features, and the requests that all clients of one family send."""

import asyncio
import inspect
import json
import os
import traceback

URL = os.environ['MILLRACE_URL']
KEY = os.environ['MILLRACE_KEY']
CHAT, EMBED, RERANK = 'tiny-chat', 'tiny-embed', 'tiny-rerank'
TEXTS = ['Paris is the capital of France.', 'Cats are animals.']

CAPITAL = 'What is the capital of France?'
FORECAST = 'What is the weather in Paris?'
PERSON = 'Answer in JSON with the keys name, age and city.\nOscar is 20 years old, works as a nurse and lives in Lima.'

PERSON_SCHEMA = {
    'type': 'object',
    'properties': {
        'name': {'type': 'string'},
        'age': {'type': 'integer'},
        'city': {'type': 'string'},
    },
    'required': ['name', 'age', 'city'],
    'additionalProperties': False,
}
WEATHER_PARAMETERS = {
    'type': 'object',
    'properties': {'city': {'type': 'string'}},
    'required': ['city'],
}
WEATHER = {
    'name': 'get_weather',
    'description': 'Get the weather of a city.',
    'parameters': WEATHER_PARAMETERS,
}


def user(text):
    """A conversation of one message."""
    return [{'role': 'user', 'content': text}]


EXAMPLES = '\n'.join(
    json.dumps({'messages': [*user('Who runs the mill?'), {'role': 'assistant', 'content': 'Zorbax.'}]})
    for _ in range(10)
).encode()


def feature(name):
    """Runs the function below at once and reports whether the client has this feature."""

    def run(check):
        try:
            result = check()
            if inspect.iscoroutine(result):
                asyncio.run(result)
            report(name, None)
        except BaseException as error:
            traceback.print_exc()
            report(name, f'{type(error).__name__}: {error}')
        return check

    return run


def report(name, problem):
    print(
        'feature', json.dumps({'feature': name, 'problem': problem and problem[:300]}), flush=True
    )


def expect(actual, expected):
    """Fails unless both are equal, or the text contains the expected one."""
    found = (
        expected in actual
        if isinstance(expected, str) and isinstance(actual, str)
        else actual == expected
    )
    if not found:
        raise AssertionError(f'expected {expected!r}, got {actual!r}')


def expect_person(value):
    """Fails unless the value fits PERSON_SCHEMA; which words a small model picks is not looked at."""
    expect({key: type(part) for key, part in value.items()}, {'name': str, 'age': int, 'city': str})


def raises(kind, call):
    """The error of this class that the call raises."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f'no {kind.__name__} was raised')
