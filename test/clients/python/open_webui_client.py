"""Open WebUI with this server as its OpenAI connection, used through its own API."""

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import wave

import requests
from features import *

with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    port = probe.getsockname()[1]
data = tempfile.TemporaryDirectory(prefix='millrace-open-webui-', ignore_cleanup_errors=True)
settings = {
    'DATA_DIR': data.name,
    'WEBUI_SECRET_KEY': uuid.uuid4().hex,
    'OFFLINE_MODE': 'true',
    'ENABLE_OLLAMA_API': 'false',
    'OPENAI_API_BASE_URL': f'{URL}/v1',
    'OPENAI_API_KEY': KEY,
    'RAG_EMBEDDING_ENGINE': 'openai',
    'RAG_EMBEDDING_MODEL': EMBED,
    'ENABLE_RAG_HYBRID_SEARCH': 'true',
    'RAG_RERANKING_ENGINE': 'external',
    'RAG_RERANKING_MODEL': 'tiny-rerank',
    'RAG_EXTERNAL_RERANKER_URL': f'{URL}/v1/rerank',
    'RAG_EXTERNAL_RERANKER_API_KEY': KEY,
    'ENABLE_IMAGE_GENERATION': 'true',
    'IMAGE_GENERATION_MODEL': 'tiny-sd',
    'IMAGE_SIZE': '256x256',
    'AUDIO_STT_ENGINE': 'openai',
    # Each of these is OpenAI's own server unless it is set.
    **{
        f'{use}_OPENAI_API_{name}': value
        for use in ('RAG', 'IMAGES', 'AUDIO_STT', 'AUDIO_TTS')
        for name, value in (('BASE_URL', f'{URL}/v1'), ('KEY', KEY))
    },
    'AUDIO_STT_MODEL': 'tiny-whisper',
    'AUDIO_TTS_ENGINE': 'openai',
    'AUDIO_TTS_MODEL': 'tiny-tts',
}
command = [os.path.join(os.path.dirname(sys.executable), 'open-webui'), 'serve']
command += ['--host', '127.0.0.1', '--port', str(port)]
webui = subprocess.Popen(
    command, env={**os.environ, **settings}, cwd=data.name, stdout=sys.stderr, stderr=sys.stderr
)
base = f'http://127.0.0.1:{port}'
for _ in range(360):
    try:
        requests.get(f'{base}/health', timeout=5).raise_for_status()
        break
    except requests.RequestException:
        time.sleep(0.5)
session = requests.Session()


def call(method, path, **fields):
    answer = session.request(method, f'{base}/api{path}', timeout=120, **fields)
    if not answer.ok:
        raise AssertionError(f'{answer.status_code} {answer.text[:200]}')
    return answer


account = {'name': 'Ada', 'email': 'ada@example.com', 'password': 'a long Passw0rd'}
token = call('POST', '/v1/auths/signup', json=account).json()['token']
session.headers['authorization'] = f'Bearer {token}'
asked = {'model': CHAT, 'temperature': 0, 'max_tokens': 60}


def lines_of(answer):
    lines = [line[6:] for line in answer.iter_lines(decode_unicode=True) if line[:6] == 'data: ']
    return [json.loads(line) for line in lines if line != '[DONE]']


@feature('models')
def _():
    ids = [model['id'] for model in call('GET', '/models').json()['data']]
    expect(CHAT in ids, True)


@feature('chat')
def _():
    answer = call('POST', '/chat/completions', json={**asked, 'messages': user(CAPITAL)}).json()
    expect(answer['choices'][0]['message']['content'], 'Paris')


@feature('stream')
def _():
    body = {**asked, 'messages': user(CAPITAL), 'stream': True}
    chunks = lines_of(call('POST', '/chat/completions', json=body, stream=True))
    deltas = [chunk['choices'][0]['delta'] for chunk in chunks if chunk.get('choices')]
    expect(''.join(delta.get('content') or '' for delta in deltas), 'Paris')


@feature('tools')
def _():
    tools = [{'type': 'function', 'function': WEATHER}]
    body = {**asked, 'messages': user(FORECAST), 'tools': tools}
    answer = call('POST', '/chat/completions', json=body).json()
    arguments = answer['choices'][0]['message']['tool_calls'][0]['function']['arguments']
    expect(json.loads(arguments), {'city': 'Paris'})


@feature('embeddings')
def _():
    text = call('POST', '/embeddings', json={'model': EMBED, 'input': TEXTS}).json()
    expect(len(text['data']), 2)


@feature('documents')
def _():
    files = {'file': ('facts.txt', '\n'.join(TEXTS).encode(), 'text/plain')}
    made = call('POST', '/v1/files/?process=true&process_in_background=false', files=files).json()
    query = {'collection_name': f'file-{made["id"]}', 'query': 'Which animals?', 'k': 1}
    found = call('POST', '/v1/retrieval/query/doc', json=query).json()
    expect(found['documents'][0][0], 'Cats are animals')


@feature('images')
def _():
    images = call('POST', '/v1/images/generations', json={'prompt': 'A red square.'}).json()
    expect(session.get(base + images[0]['url'], timeout=60).content[:4], b'\x89PNG')


@feature('speech')
def _():
    spoken = call('POST', '/v1/audio/speech', json={'input': 'Hello.', 'voice': 'alloy'})
    expect(len(spoken.content) > 1000, True)
    offered = call('GET', '/v1/audio/voices').json()['voices']
    expect('alloy' in [voice['id'] for voice in offered], True)


@feature('audio')
def _():
    recording = io.BytesIO()
    with wave.open(recording, 'wb') as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(bytes(32000))
    files = {'file': ('a.wav', recording.getvalue(), 'audio/wav')}
    answer = call('POST', '/v1/audio/transcriptions', files=files).json()
    expect(isinstance(answer['text'], str), True)


webui.terminate()
webui.wait()
