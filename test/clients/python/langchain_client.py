"""LangChain: the OpenAI, Anthropic and Cohere integrations."""

from features import *
from langchain_anthropic import ChatAnthropic
from langchain_cohere import CohereEmbeddings, CohereRerank
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

model = ChatOpenAI(model=CHAT, base_url=f'{URL}/v1', api_key=KEY, temperature=0, max_tokens=60)


class Person(BaseModel):
    """A person."""

    name: str
    age: int
    city: str


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return 'sunny'


@feature('chat')
def _():
    expect(model.invoke(CAPITAL).content, 'Paris')
    expect([answer.content for answer in model.batch([CAPITAL, CAPITAL])][1], 'Paris')


@feature('stream')
def _():
    expect(''.join(chunk.content for chunk in model.stream(CAPITAL)), 'Paris')


@feature('tools')
def _():
    for choice in ('auto', 'any', 'get_weather'):
        calls = model.bind_tools([get_weather], tool_choice=choice).invoke(FORECAST).tool_calls
        expect(calls[0]['args'], {'city': 'Paris'})


@feature('structured')
def _():
    for method in ('json_schema', 'function_calling', 'json_mode'):
        answer = model.with_structured_output(Person, method=method).invoke(PERSON)
        expect_person(answer.model_dump())


@feature('embeddings')
def _():
    # The default sends token ids of cl100k_base.
    for name in ('text-embedding-3-small', EMBED):
        embeddings = OpenAIEmbeddings(
            model=name, base_url=f'{URL}/v1', api_key=KEY, check_embedding_ctx_length=name != EMBED
        )
        expect(len(embeddings.embed_documents(TEXTS)), 2)


@feature('cohere embeddings')
def _():
    embeddings = CohereEmbeddings(model=EMBED, base_url=URL, cohere_api_key=KEY)
    expect(len(embeddings.embed_documents(TEXTS)), 2)
    expect(len(embeddings.embed_query(TEXTS[0])) > 10, True)


@feature('responses')
def _():
    over_responses = ChatOpenAI(
        model=CHAT, base_url=f'{URL}/v1', api_key=KEY, temperature=0, use_responses_api=True
    )
    expect(over_responses.invoke(CAPITAL).text, 'Paris')
    expect(
        over_responses.bind_tools([get_weather]).invoke(FORECAST).tool_calls[0]['args'],
        {'city': 'Paris'},
    )


@feature('errors')
def _():
    import openai

    raises(
        openai.NotFoundError,
        lambda: ChatOpenAI(model='none', base_url=f'{URL}/v1', api_key=KEY).invoke('a'),
    )


@feature('messages')
def _():
    anthropic = ChatAnthropic(model=CHAT, base_url=URL, api_key=KEY, temperature=0, max_tokens=60)
    expect(anthropic.invoke(CAPITAL).text, 'Paris')
    expect(
        anthropic.bind_tools([get_weather]).invoke(FORECAST).tool_calls[0]['args'],
        {'city': 'Paris'},
    )


@feature('rerank')
def _():
    ranker = CohereRerank(model=RERANK, base_url=URL, cohere_api_key=KEY, top_n=1)
    expect(ranker.rerank(TEXTS, 'capital of France')[0]['index'], 0)
