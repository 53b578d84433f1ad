"""LlamaIndex: the integrations of OpenAI-like servers, Cohere and Text Embeddings Inference."""

from features import *
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.cohere import CohereEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
from llama_index.llms.openai_like import OpenAILike
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference as TeiRerank
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


@feature('cohere embeddings')
def _():
    # It knows the models of Cohere alone.
    embeddings = CohereEmbedding(model_name='embed-english-v3.0', base_url=URL, api_key=KEY)
    expect(len(embeddings.get_text_embedding_batch(TEXTS)), 2)


@feature('text-embeddings-inference')
def _():
    embeddings = TextEmbeddingsInference(model_name='any', base_url=URL, auth_token=KEY)
    expect(len(embeddings.get_text_embedding_batch(TEXTS)), 2)
    nodes = [NodeWithScore(node=TextNode(text=text)) for text in reversed(TEXTS)]
    ranker = TeiRerank(base_url=URL, auth_token=f'Bearer {KEY}', top_n=1)
    ranked = ranker.postprocess_nodes(nodes, query_str='capital of France')
    expect([each.node.text for each in ranked], TEXTS[:1])


@feature('completions')
def _():
    texts = OpenAILike(
        model=CHAT, api_base=f'{URL}/v1', api_key=KEY, max_tokens=8, context_window=1024
    )
    expect(len(texts.complete('The sun is').text) > 0, True)
