"""Outlines: types that an OpenAI or vLLM server enforces."""

import json
from typing import Literal

import openai
import outlines
from features import *
from pydantic import BaseModel

client = openai.OpenAI(base_url=f'{URL}/v1', api_key=KEY)
asked = {'temperature': 0, 'max_tokens': 60}


class Person(BaseModel):
    name: str
    age: int
    city: str


@feature('chat')
def _():
    expect(outlines.from_openai(client, CHAT)(CAPITAL, **asked), 'Paris')


@feature('stream')
def _():
    expect(''.join(outlines.from_openai(client, CHAT).stream(CAPITAL, **asked)), 'Paris')


@feature('structured')
def _():
    expect_person(json.loads(outlines.from_openai(client, CHAT)(PERSON, Person, **asked)))
    # As a client of vLLM it sends guided_json, guided_regex and guided_choice.
    peer = outlines.from_vllm(client, CHAT)
    expect_person(json.loads(peer(PERSON, Person, **asked)))
    expect(peer('Is soup hot?', Literal['yes', 'no'], **asked) in ('yes', 'no'), True)
    expect(peer('A number:', outlines.regex('[0-9]{3}'), **asked).isdigit(), True)
