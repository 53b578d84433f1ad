"""mem0: a memory with this server for its texts and vectors."""

import tempfile

from features import *
from mem0 import Memory
from mem0.configs.embeddings.base import BaseEmbedderConfig
from mem0.configs.llms.openai import OpenAIConfig
from mem0.embeddings.openai import OpenAIEmbedding
from mem0.llms.openai import OpenAILLM

at = {'openai_base_url': f'{URL}/v1', 'api_key': KEY}


def open_memory():
    folder = tempfile.mkdtemp()
    size = len(embedder().embed('a'))
    return Memory.from_config(
        {
            'llm': {
                'provider': 'openai',
                'config': {'model': CHAT, 'temperature': 0, 'max_tokens': 200, **at},
            },
            'embedder': {'provider': 'openai', 'config': {'model': EMBED, **at}},
            'vector_store': {
                'provider': 'qdrant',
                'config': {'path': f'{folder}/vectors', 'embedding_model_dims': size},
            },
            'history_db_path': f'{folder}/history.db',
        }
    )


def embedder():
    return OpenAIEmbedding(BaseEmbedderConfig(model=EMBED, **at))


@feature('embeddings')
def _():
    expect(len(embedder().embed(TEXTS[0])) > 10, True)


@feature('memory')
def _():
    memory = open_memory()
    for text in TEXTS:
        memory.add(text, user_id='u', infer=False)
    found = memory.search('capital of France', filters={'user_id': 'u'}, limit=1)
    expect(found['results'][0]['memory'], TEXTS[0])


@feature('chat')
def _():
    # What a memory asks of its model has 15,000 tokens, more than the context of the one that ships.
    llm = OpenAILLM(OpenAIConfig(model=CHAT, temperature=0, max_tokens=60, **at))
    expect(llm.generate_response(messages=user(CAPITAL)), 'Paris')
