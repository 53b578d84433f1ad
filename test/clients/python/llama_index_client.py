"""LlamaIndex: the OpenAI-like integrations."""

from features import *
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

model = OpenAILike(
    model=CHAT,
    api_base=f'{URL}/v1',
    api_key=KEY,
    temperature=0,
    max_tokens=60,
    is_chat_model=True,
    is_function_calling_model=True,
    context_window=1024,
)
asked = [ChatMessage(role='user', content=CAPITAL)]


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return 'sunny'


@feature('chat')
def _():
    expect(model.chat(asked).message.content, 'Paris')


@feature('stream')
def _():
    expect(''.join(chunk.delta for chunk in model.stream_chat(asked)), 'Paris')


@feature('tools')
def _():
    answer = model.predict_and_call([FunctionTool.from_defaults(get_weather)], FORECAST)
    expect(str(answer), 'sunny')


@feature('structured')
def _():
    expect_person(model.as_structured_llm(Person).complete(PERSON).raw.model_dump())


@feature('embeddings')
def _():
    embeddings = OpenAILikeEmbedding(model_name=EMBED, api_base=f'{URL}/v1', api_key=KEY)
    expect(len(embeddings.get_text_embedding_batch(TEXTS)), 2)


@feature('completions')
def _():
    texts = OpenAILike(
        model=CHAT, api_base=f'{URL}/v1', api_key=KEY, max_tokens=8, context_window=1024
    )
    expect(len(texts.complete('The sun is').text) > 0, True)
