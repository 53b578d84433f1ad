"""Instructor: objects by tools and by JSON Schema."""

import instructor
import openai
from features import *
from pydantic import BaseModel

client = openai.OpenAI(base_url=f'{URL}/v1', api_key=KEY)
asked = {
    'model': CHAT,
    'messages': user(PERSON),
    'temperature': 0,
    'max_tokens': 80,
    'max_retries': 0,
}


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


@feature('tools')
def _():
    answer = instructor.from_openai(client, mode=instructor.Mode.TOOLS).create(
        response_model=Person, **asked
    )
    expect_person(answer.model_dump())


@feature('structured')
def _():
    answer = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).create(
        response_model=Person, **asked
    )
    expect_person(answer.model_dump())


@feature('stream')
def _():
    parts = instructor.from_openai(client).create_partial(response_model=Person, **asked)
    expect_person(list(parts)[-1].model_dump())
