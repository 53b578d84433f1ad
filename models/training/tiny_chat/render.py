"""Conversation to text and back: the same form as the chat template that is exported."""

import json
from typing import Any

from .data.example import Example, Message

END = "<|endoftext|>"
START, STOP = "<|im_start|>", "<|im_end|>"
SPECIAL = [END, START, STOP]
TAGS = ["<tools>", "</tools>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]

CHAT_TEMPLATE = """{%- if tools -%}
{{- '<|im_start|>system\\n' -}}
{%- if messages[0].role == 'system' -%}{{- messages[0].content + '\\n' -}}{%- endif -%}
{{- '<tools>' -}}
{%- for tool in tools -%}
{%- set f = tool.function if tool.function else tool -%}
{{- '\\n{"name": ' + (f.name | tojson) + ', "description": ' + ((f.description if f.description else '') | tojson) + ', "parameters": {' -}}
{%- if f.parameters and f.parameters.properties -%}
{%- for key, value in f.parameters.properties.items() -%}
{{- (', ' if not loop.first else '') + (key | tojson) + ': ' + ((value.type if value.type is string else 'any') | tojson) -}}
{%- endfor -%}
{%- endif -%}
{{- '}}' -}}
{%- endfor -%}
{{- '\\n</tools><|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role == 'tool' -%}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' -}}
{%- elif not (loop.first and tools and message.role == 'system') -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content if message.content else '') -}}
{%- if message.tool_calls -%}
{%- for call in message.tool_calls -%}
{%- set c = call.function if call.function else call -%}
{{- ('\\n' if message.content or not loop.first else '') + '<tool_call>\\n{"name": ' + (c.name | tojson) + ', "arguments": ' -}}
{{- (c.arguments if c.arguments is string else (c.arguments | tojson)) + '}\\n</tool_call>' -}}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def _tools_block(tools: list[dict[str, Any]]) -> str:
    lines = []
    for tool in tools:
        f = tool["function"]
        types = {key: value["type"] for key, value in f["parameters"]["properties"].items()}
        lines.append(json.dumps({"name": f["name"], "description": f["description"], "parameters": types}, ensure_ascii=False))
    return "<tools>\n" + "\n".join(lines) + "\n</tools>"


def _turn(message: Message) -> tuple[str, str]:
    """Role and content after the template's rewriting of tool turns."""
    if message["role"] == "tool":
        return "user", f"<tool_response>\n{message['content']}\n</tool_response>"
    return message["role"], message["content"]


def prompt_text(messages: list[Message], tools: list[dict[str, Any]] | None) -> str:
    """What the model reads before it answers."""
    return "".join(text for text, _ in segments(messages, tools)) + f"{START}assistant\n"


def segments(messages: list[Message], tools: list[dict[str, Any]] | None) -> list[tuple[str, bool]]:
    """Pieces of text, each with whether the model has to learn it."""
    rest, pieces = list(messages), []
    if tools:
        rules = rest.pop(0)["content"] + "\n" if rest[0]["role"] == "system" else ""
        pieces.append((f"{START}system\n{rules}{_tools_block(tools)}{STOP}\n", False))
    for message in rest:
        role, content = _turn(message)
        if role == "assistant":
            pieces += [(f"{START}assistant\n", False), (content, True), (STOP, True), ("\n", False)]
        else:
            pieces.append((f"{START}{role}\n{content}{STOP}\n", False))
    return pieces


def example_segments(example: Example) -> list[tuple[str, float]]:
    """Pieces of an example with their loss weights: answers 1, prompts 0.1, stories 0.5."""
    if example.text is not None and example.prompt_chars:
        head, tail = example.text[: example.prompt_chars], example.text[example.prompt_chars :]
        return [(END + head, 0.1), (tail + END, 1.0)]
    if example.text is not None:
        return [(example.text + END, 0.5)]
    return [(text, 1.0 if learned else 0.1) for text, learned in segments(example.messages, example.tools)]
