"""Guidance: constrained text on a remote OpenAI server."""

import json

import guidance
from features import *
from guidance import assistant, gen
from guidance import json as gen_json
from guidance import user as user_turn


def model():
    return guidance.models.OpenAI(CHAT, base_url=f'{URL}/v1', api_key=KEY)


@feature('chat')
def _():
    talk = model()
    with user_turn():
        talk += CAPITAL
    with assistant():
        talk += gen('answer', max_tokens=40, temperature=0)
    expect(talk['answer'], 'Paris')


@feature('structured')
def _():
    talk = model()
    with user_turn():
        talk += PERSON
    with assistant():
        talk += gen_json('person', schema=PERSON_SCHEMA, max_tokens=60, temperature=0)
    expect_person(json.loads(talk['person']))
