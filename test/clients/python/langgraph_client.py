"""LangGraph: an agent that calls a tool, and its stream."""

from features import *
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model=CHAT, base_url=f'{URL}/v1', api_key=KEY, temperature=0, max_tokens=60)


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return 'sunny'


agent = create_agent(model, [get_weather])
question = {'messages': user(FORECAST)}


@feature('tools')
def _():
    messages = agent.invoke(question, {'recursion_limit': 8})['messages']
    expect([message.type for message in messages][:3], ['human', 'ai', 'tool'])
    expect(messages[2].content, 'sunny')


@feature('stream')
def _():
    chunks = [
        chunk for chunk, _ in agent.stream(question, {'recursion_limit': 8}, stream_mode='messages')
    ]
    expect(any(chunk.type == 'tool' for chunk in chunks), True)
