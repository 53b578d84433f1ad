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


EDIT = """a.txt
```
<<<<<<< SEARCH
A cat.
=======
A dog.
>>>>>>> REPLACE
```
"""


def coder(folder, stream, edit_format='ask', **options):
    os.chdir(folder)
    file = Path(folder, 'a.txt')
    file.write_text('A cat.\n')
    model = Model(f'openai/{CHAT}')
    model.extra_params = options
    return Coder.create(
        main_model=model,
        edit_format=edit_format,
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


@feature('edit')
def _():
    # The shipped model is too small to write an edit, so its answer is a choice of one.
    choice = {'extra_body': {'guided_choice': [EDIT]}}
    for stream in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            editing = coder(folder, stream, 'diff', **choice)
            # The usual instructions are longer than its context.
            for instructions in ('main_system', 'system_reminder'):
                setattr(editing.gpt_prompts, instructions, 'Edit the file.')
            editing.gpt_prompts.example_messages = []
            editing.run('Change the cat into a dog.')
            expect(Path(folder, 'a.txt').read_text(), 'A dog.\n')
