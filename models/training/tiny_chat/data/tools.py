"""Tool calls in the Hermes form: tools in the system turn, calls and responses between tags."""

import json
import random
from typing import Any

from ...common import words as w
from .context import city, person
from .example import Example, Message, assistant, system, user
from .sentences import some_word
from .talk import small_talk

Call = tuple[str, dict[str, Any], str, dict[str, Any], str]


def _tool(name: str, description: str, parameters: dict[str, str]) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _weather(rng: random.Random) -> Call:
    where, degrees = city(rng), rng.randrange(-9, 38)
    ask = rng.choice(["What is the weather in {}?", "How is the weather in {}?", "Is it warm in {}?", "Weather in {}?", "Tell me the weather in {}."])
    name = rng.choice(["get_weather", "get_weather", "weather", "get_current_weather", "weather_lookup"])
    return name, {"city": where}, ask.format(where), {"temperature": degrees}, f"It is {degrees} degrees in {where}."


def _time(rng: random.Random) -> Call:
    where, hour, minute = city(rng), rng.randrange(24), rng.randrange(60)
    clock = f"{hour:02d}:{minute:02d}"
    ask = rng.choice(["What time is it in {}?", "Tell me the time in {}.", "Time in {}?"])
    return rng.choice(["get_time", "get_time", "clock"]), {"city": where}, ask.format(where), {"time": clock}, f"It is {clock} in {where}."


def _add(rng: random.Random) -> Call:
    a, b = rng.randrange(1000), rng.randrange(1000)
    ask = rng.choice(["What is {} plus {}?", "Add {} and {}.", "Use the calculator: {} + {}", "Calculate {} + {}."])
    return rng.choice(["add", "add_numbers", "calculator_add"]), {"a": a, "b": b}, ask.format(a, b), {"result": a + b}, f"The result is {a + b}."


def _search(rng: random.Random) -> Call:
    query = f"{some_word(rng)} {some_word(rng)}"
    ask = rng.choice(["Search for {}.", "Look up {}.", "Find {} on the web."])
    return rng.choice(["search", "search_web", "web_search"]), {"query": query}, ask.format(query), {"results": 3}, f"I found 3 results for {query}."


def _mail(rng: random.Random) -> Call:
    to, subject = person(rng), f"{some_word(rng)} {some_word(rng)}"
    ask = rng.choice(["Send a mail to {} about {}.", "Write an email to {} about {}.", "Mail {} about {}."])
    return rng.choice(["send_email", "send_mail"]), {"to": to, "subject": subject}, ask.format(to, subject), {"status": "sent"}, f"I sent the mail to {to}."


def _timer(rng: random.Random) -> Call:
    minutes = rng.randrange(1, 120)
    ask = rng.choice(["Set a timer for {} minutes.", "Wake me in {} minutes.", "Start a timer: {} minutes."])
    return "set_timer", {"minutes": minutes}, ask.format(minutes), {"status": "ok"}, f"The timer is set to {minutes} minutes."


def _order(rng: random.Random) -> Call:
    item, count = w.plural(some_word(rng)), rng.randrange(2, 50)
    ask = rng.choice(["Order {} {}.", "Please buy {} {}.", "I need {} {}."])
    return rng.choice(["order", "place_order"]), {"item": item, "count": count}, ask.format(count, item), {"status": "ok"}, f"I ordered {count} {item}."


def _light(rng: random.Random) -> Call:
    room, on = rng.choice("kitchen garden office bedroom hall bathroom garage".split()), rng.choice(["on", "off"])
    ask = rng.choice(["Turn {1} the light in the {0}.", "Switch the {0} light {1}.", "Light {1} in the {0}."])
    return "set_light", {"room": room, "state": on}, ask.format(room, on), {"status": "ok"}, f"The light in the {room} is {on}."


def _invented(rng: random.Random) -> Call:
    """A tool that nobody knows: only the list in the system turn tells its name."""
    verb, noun, thing = rng.choice("get find show open start check make".split()), w.pseudo_word(rng, 2), some_word(rng)
    key = rng.choice(["name", "id", "value", some_word(rng)])
    value: Any = rng.randrange(1000) if rng.random() < 0.4 else w.open_word(rng) if rng.random() < 0.4 else thing
    value = int(value) if isinstance(value, str) and value.isdigit() else value
    return f"{verb}_{noun}", {key: value}, f"{verb.capitalize()} the {noun} {value}.", {"status": "ok"}, "Done."


TOOLS = [_weather, _weather, _time, _add, _search, _mail, _timer, _order, _light, _invented, _invented]
DESCRIPTIONS = {_weather: "Get the weather of a city", _time: "Get the time in a city", _add: "Add two numbers", _search: "Search the web",
                _mail: "Send an email", _timer: "Start a timer", _order: "Order something", _light: "Switch a light"}


def _describe(rng: random.Random, maker: Any, call: Call) -> dict[str, Any]:
    types = {key: "integer" if isinstance(value, int) else "string" for key, value in call[1].items()}
    words = DESCRIPTIONS.get(maker, call[0].replace("_", " ").capitalize())
    return _tool(call[0], "" if rng.random() < 0.1 else words, types)


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """The assistant's call between its tags."""
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


def tools(rng: random.Random) -> Example:
    """Choose the tool and fill it in; sometimes read its response; sometimes no tool is wanted."""
    makers = rng.sample(TOOLS, rng.choice([1, 1, 2, 2, 3]))
    makers = [m for i, m in enumerate(makers) if m is _invented or m not in makers[:i]]
    calls = [maker(rng) for maker in makers]
    listed = {call[0]: _describe(rng, maker, call) for maker, call in zip(makers, calls, strict=True)}
    name, arguments, question, response, answer = calls[0]
    shown = list(listed.values())
    rng.shuffle(shown)
    rules: list[Message] = [system("You are a helpful assistant.")] if rng.random() < 0.15 else []
    key = f"tools:{name}/{json.dumps(arguments)}"
    kind = rng.random()
    if kind < 0.12:
        return Example("tools-none", "tools-none:" + key, [*rules, *small_talk(rng)], shown)
    call = assistant(call_text(name, arguments))
    if kind < 0.72:
        return Example("tools", key, [*rules, user(question), call], shown)
    reply = {"role": "tool", "content": json.dumps(response)}
    return Example("tools-answer", key, [*rules, user(question), call, reply, assistant(answer)], shown)
