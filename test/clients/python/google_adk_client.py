"""Google's Agent Development Kit over LiteLLM."""

from features import *
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types

model = LiteLlm(
    model=f'openai/{CHAT}', api_base=f'{URL}/v1', api_key=KEY, temperature=0, max_tokens=60
)
calls = []


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    calls.append(city)
    return 'sunny'


async def ask(text, **options):
    runner = InMemoryRunner(agent=LlmAgent(name='guide', model=model, **options), app_name='guide')
    session = await runner.session_service.create_session(app_name='guide', user_id='u')
    content = types.Content(role='user', parts=[types.Part(text=text)])
    events = runner.run_async(user_id='u', session_id=session.id, new_message=content)
    parts = [part async for event in events if event.content for part in event.content.parts]
    return ''.join(part.text or '' for part in parts)


@feature('chat')
async def _():
    expect(await ask(CAPITAL), 'Paris')


@feature('tools')
async def _():
    await ask(FORECAST, tools=[get_weather])
    expect(calls[:1], ['Paris'])
