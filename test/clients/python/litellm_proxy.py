"""LiteLLM's proxy in front of this server, asked by the official clients."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import anthropic
import openai
from features import *

with socket.socket() as probe:
    probe.bind(('127.0.0.1', 0))
    port = probe.getsockname()[1]
config = {
    'model_list': [
        {
            'model_name': name,
            'litellm_params': {'model': f'openai/{name}', 'api_base': f'{URL}/v1', 'api_key': KEY},
        }
        for name in (CHAT, EMBED)
    ],
    'general_settings': {'master_key': 'sk-proxy'},
}
with tempfile.NamedTemporaryFile('w', suffix='.yaml', delete=False) as file:
    json.dump(config, file)
litellm = os.path.join(os.path.dirname(sys.executable), 'litellm')
command = [litellm, '--config', file.name, '--host', '127.0.0.1', '--port', str(port)]
proxy = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
base = f'http://127.0.0.1:{port}'
for _ in range(240):
    try:
        urllib.request.urlopen(f'{base}/health/liveliness', timeout=5)
        break
    except OSError:
        time.sleep(0.5)
client = openai.OpenAI(base_url=base, api_key='sk-proxy', max_retries=0)
asked = {'model': CHAT, 'temperature': 0, 'max_tokens': 60}


@feature('chat')
def _():
    answer = client.chat.completions.create(messages=user(CAPITAL), **asked)
    expect(answer.choices[0].message.content, 'Paris')


@feature('stream')
def _():
    chunks = client.chat.completions.create(messages=user(CAPITAL), stream=True, **asked)
    expect(
        ''.join(chunk.choices[0].delta.content or '' for chunk in chunks if chunk.choices), 'Paris'
    )


@feature('tools')
def _():
    tools = [{'type': 'function', 'function': WEATHER}]
    answer = client.chat.completions.create(messages=user(FORECAST), tools=tools, **asked)
    expect(
        json.loads(answer.choices[0].message.tool_calls[0].function.arguments), {'city': 'Paris'}
    )


@feature('embeddings')
def _():
    expect(len(client.embeddings.create(model=EMBED, input=TEXTS).data), 2)


@feature('responses')
def _():
    expect(client.responses.create(model=CHAT, input=CAPITAL, temperature=0).output_text, 'Paris')


@feature('errors')
def _():
    raises(
        openai.BadRequestError,
        lambda: client.chat.completions.create(model=CHAT, messages=user('a'), n=1000),
    )


@feature('messages')
def _():
    spoken = anthropic.Anthropic(base_url=base, api_key='sk-proxy', max_retries=0)
    expect(
        spoken.messages.create(model=CHAT, max_tokens=60, messages=user(CAPITAL)).content[0].type,
        'text',
    )


proxy.terminate()
proxy.wait()
os.unlink(file.name)
