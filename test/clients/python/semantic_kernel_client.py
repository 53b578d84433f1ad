"""Semantic Kernel: chat and embeddings of OpenAI."""

import openai
from features import *
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import (
    OpenAIChatCompletion,
    OpenAIChatPromptExecutionSettings,
)
from semantic_kernel.connectors.ai.open_ai import OpenAITextEmbedding
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function

called = []


def services():
    client = openai.AsyncOpenAI(base_url=f'{URL}/v1', api_key=KEY)
    return OpenAIChatCompletion(ai_model_id=CHAT, async_client=client), OpenAITextEmbedding(
        EMBED, async_client=client
    )


def history(text):
    made = ChatHistory()
    made.add_user_message(text)
    return made


class Weather:
    @kernel_function(name='get_weather', description='Get the weather of a city.')
    def get_weather(self, city: str) -> str:
        called.append(city)
        return 'sunny'


@feature('chat')
async def _():
    settings = OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=60)
    expect(str(await services()[0].get_chat_message_content(history(CAPITAL), settings)), 'Paris')


@feature('stream')
async def _():
    settings = OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=60)
    stream = services()[0].get_streaming_chat_message_content(history(CAPITAL), settings)
    expect(''.join([str(piece) async for piece in stream]), 'Paris')


@feature('tools')
async def _():
    kernel = Kernel()
    kernel.add_plugin(Weather(), 'weather')
    settings = OpenAIChatPromptExecutionSettings(temperature=0, max_tokens=60)
    settings.function_choice_behavior = FunctionChoiceBehavior.Required()
    await services()[0].get_chat_message_content(history(FORECAST), settings, kernel=kernel)
    expect(called[0], 'Paris')


@feature('embeddings')
async def _():
    expect(len(await services()[1].generate_embeddings(TEXTS)), 2)
