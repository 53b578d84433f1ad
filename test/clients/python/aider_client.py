"""aider, which edits the files of a folder in a conversation."""

import os
import tempfile
from pathlib import Path

os.environ['OPENAI_API_BASE'] = f'{os.environ["MILLRACE_URL"]}/v1'
os.environ['OPENAI_API_KEY'] = os.environ['MILLRACE_KEY']
os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model
from features import *


def coder(folder, stream):
    os.chdir(folder)
    file = Path(folder, 'a.txt')
    file.write_text('A cat.\n')
    return Coder.create(
        main_model=Model(f'openai/{CHAT}'),
        edit_format='ask',
        io=InputOutput(yes=True, chat_history_file=None, pretty=False, fancy_input=False),
        fnames=[str(file)],
        use_git=False,
        stream=stream,
    )


@feature('chat')
def _():
    with tempfile.TemporaryDirectory() as folder:
        expect(len(coder(folder, False).run(CAPITAL)) > 0, True)


@feature('stream')
def _():
    with tempfile.TemporaryDirectory() as folder:
        asking = coder(folder, True)
        expect(len(asking.run(CAPITAL)) > 0, True)
        expect(asking.total_tokens_received > 0, True)
