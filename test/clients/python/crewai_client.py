"""CrewAI: its LLM, and a crew of one agent."""

import os

os.environ.update(CREWAI_DISABLE_TELEMETRY='true', OTEL_SDK_DISABLED='true', OPENAI_API_KEY='none')

from crewai import LLM, Agent, Crew, Task
from features import *
from pydantic import BaseModel

at = {'base_url': f'{URL}/v1', 'api_key': KEY, 'temperature': 0, 'max_tokens': 60}
model = LLM(model=f'openai/{CHAT}', **at)


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


@feature('chat')
def _():
    expect(model.call(CAPITAL), 'Paris')


@feature('stream')
def _():
    expect(LLM(model=f'openai/{CHAT}', stream=True, **at).call(CAPITAL), 'Paris')


@feature('tools')
def _():
    tools = [{'type': 'function', 'function': WEATHER}]
    functions = {'get_weather': lambda city: f'sunny in {city}'}
    expect(model.call(FORECAST, tools=tools, available_functions=functions), 'sunny in Paris')


@feature('structured')
def _():
    person = model.call(PERSON, response_model=Person)
    person = Person.model_validate_json(person) if isinstance(person, str) else person
    expect_person(person.model_dump())


@feature('agent')
def _():
    agent = Agent(role='Guide', goal='Answer.', backstory='A guide.', llm=model, max_iter=2)
    task = Task(description=CAPITAL, expected_output='A city.', agent=agent)
    expect(len(Crew(agents=[agent], tasks=[task]).kickoff().raw) > 0, True)
