"""The `llm` library: a model of extra-openai-models.yaml."""

import json
import os
import pathlib
import tempfile

from features import *

folder = tempfile.TemporaryDirectory()
os.environ['LLM_USER_PATH'] = folder.name
model_of_yaml = f"""
- model_id: mine
  model_name: {CHAT}
  api_base: {URL}/v1
  api_key_name: millrace
  supports_schema: true
  supports_tools: true
"""
pathlib.Path(folder.name, 'extra-openai-models.yaml').write_text(model_of_yaml)
pathlib.Path(folder.name, 'keys.json').write_text(json.dumps({'millrace': KEY}))
import llm  # noqa: E402  (it reads the folder when it is imported)

model = llm.get_model('mine')


@feature('chat')
def _():
    expect(model.prompt(CAPITAL, temperature=0, stream=False).text(), 'Paris')


@feature('stream')
def _():
    expect(''.join(model.prompt(CAPITAL, temperature=0)), 'Paris')


@feature('tools')
def _():
    called = []

    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        called.append(city)
        return 'sunny'

    model.chain(FORECAST, tools=[get_weather], options={'temperature': 0}).text()
    expect(called[0], 'Paris')


@feature('structured')
def _():
    expect_person(
        json.loads(model.prompt(PERSON, schema=PERSON_SCHEMA, temperature=0, max_tokens=60).text())
    )
