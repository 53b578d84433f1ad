"""Greedy answers of the exported files on problems that training never saw."""

import argparse
import json
import random
import re
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ..common.decoder_run import DecoderRun
from ..common.errors import refuse
from ..common.layout import write_json
from ..common.loop import read_checkpoint
from ..common.paths import EVALS, model_dir, work_dir
from ..common.report import load_cost, print_scores, share, write_eval
from ..common.split import is_held_out
from .data.example import Example
from .data.mix import MAKERS, held_out
from .data.stories import story
from .export import GROWING, IN_PLACE, NAME
from .render import prompt_text

COUNT = 50
FRESH = 200  # problems a gate that no edition was chosen on
# gate: (generators and kinds, how an answer is compared, the wanted score)
GATES: dict[str, tuple[list[tuple[str, str]], str, float]] = {
    "facts": ([("facts", "facts")], "exact", 0.95), "json": ([("json_from_text", "json"), ("json_from_list", "json")], "json", 0.95),
    "plural": ([("plural", "plural")], "exact", 0.95), "past": ([("past", "past")], "exact", 0.95), "spelling": ([("spell", "spell")], "exact", 0.85),
    "upper": ([("upper", "upper")], "exact", 0.9), "lower": ([("lower", "lower")], "exact", 0.9),
    "arithmetic": ([("addition", "add"), ("subtraction", "subtract")], "number", 0.85), "replace": ([("replace", "replace")], "exact", 0.8),
    "context": ([("context", "context")], "exact", 0.85), "tools": ([("tools", "tools")], "tool", 0.9), "recall": ([("recall", "recall")], "exact", 0.9),
    "refusal": ([("refusal", "refusal")], "exact", 0.9), "translation": ([("translate", "translate")], "exact", 0.8),
    "words": ([("phrase", "phrase")], "exact", 0.8), "sentiment": ([("sentiment", "sentiment")], "exact", 0.9), "topic": ([("topic", "topic")], "exact", 0.9),
}


def problems(gate: str, count: int, seed: str = "evaluate") -> list[Example]:
    """Held-out problems of one gate, the same in every run with one seed; a closed set may have fewer than `count`."""
    makers, _, _ = GATES[gate]
    rng = random.Random(f"{seed}/{gate}")
    found: dict[str, Example] = {}
    for attempt in range(count * 8):
        if len(found) == count:
            break
        name, kind = makers[attempt % len(makers)]
        made = held_out(rng, MAKERS[name], kind)
        found.setdefault(json.dumps(made.messages), made)
    return list(found.values())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _number(text: str) -> str | None:
    found = re.findall(r"-?\d+", text)
    return found[-1] if found else None


def _call(text: str) -> Any:
    inside = re.fullmatch(r"\s*<tool_call>\n(.*)\n</tool_call>\s*", text, re.S)
    return _parsed(inside[1]) if inside else None


def right(answer: str, expected: str, how: str) -> bool:
    """Compare as text, as JSON, as a tool call or by the last number."""
    if how == "json":
        return _parsed(answer) is not None and _parsed(answer) == _parsed(expected)
    if how == "tool":
        return _call(answer) is not None and _call(answer) == _call(expected)
    if how == "number":
        return _number(answer) == _number(expected)
    return answer.strip() == expected


def stories(count: int) -> list[str]:
    """Held-out stories for the perplexity."""
    rng, found = random.Random("evaluate/stories"), []
    while len(found) < count:
        made = story(rng)
        if made.text and is_held_out(made.key):
            found.append(made.text)
    return found


def _prompt(tokenizer: Tokenizer, example: Example) -> list[int]:
    return tokenizer.encode(prompt_text(example.messages[:-1], example.tools)).ids


def _answer(tokenizer: Tokenizer, run: DecoderRun, example: Example) -> tuple[list[int], str]:
    ids = run.greedy(_prompt(tokenizer, example), stop=(0, 2))
    return ids, tokenizer.decode(ids, skip_special_tokens=False)


def _write_problems(count: int) -> None:
    gates = {}
    for gate, (_, how, wanted) in GATES.items():
        rows = [{"messages": e.messages[:-1], **({"tools": e.tools} if e.tools else {}), "expected": e.messages[-1]["content"]} for e in problems(gate, count)]
        gates[gate] = {"compare": how, "wanted": wanted, "problems": rows}
    write_json(EVALS / f"{NAME}.json", {"gates": gates, "stories": stories(20)}, compact=True)


def fresh_scores(count: int = FRESH, seed: str = "fresh") -> dict[str, float]:
    """The share of right answers on other held-out problems than the committed ones."""
    folder = model_dir(NAME)
    tokenizer, run = Tokenizer.from_file(str(folder / "tokenizer.json")), DecoderRun(folder / IN_PLACE)
    scores = {}
    for gate, (_, how, _) in GATES.items():
        examples = problems(gate, count, seed)
        scores[gate] = share([right(_answer(tokenizer, run, e)[1], str(e.messages[-1]["content"]), how) for e in examples])
    return scores


def evaluate() -> None:
    """Measure, compare both files, write eval.json and the held-out problems for the tests."""
    folder = model_dir(NAME)
    if not (folder / IN_PLACE).is_file() or not (folder / GROWING).is_file():
        refuse(f"{folder} has no exported model: run `export` first.")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    run, other = DecoderRun(folder / IN_PLACE), DecoderRun(folder / GROWING)
    scores, same, shown = {}, [], {}
    for gate, (_, how, wanted) in GATES.items():
        examples = problems(gate, COUNT)
        answers = [_answer(tokenizer, run, example) for example in examples]
        flags = [right(text, str(e.messages[-1]["content"]), how) for (_, text), e in zip(answers, examples, strict=True)]
        same += [_answer(tokenizer, other, e)[0] == ids for (ids, _), e in list(zip(answers, examples, strict=True))[:6]]
        scores[gate] = {"score": share(flags), "wanted": wanted, "problems": len(examples)}
        shown[gate] = {"question": examples[0].messages[-2]["content"], "answer": answers[0][1], "right": flags[0]}
    texts = [tokenizer.encode(text).ids for text in stories(60)]
    likelihood = np.concatenate([run.log_likelihood(ids) for ids in texts])
    state = read_checkpoint(work_dir(NAME) / "checkpoint.pt") if (work_dir(NAME) / "checkpoint.pt").is_file() else {}
    write_eval(NAME, {
        "gates": scores, "fresh": fresh_scores(), "storyPerplexity": round(float(np.exp(-likelihood.mean())), 3), "bothFormsTokenIdentical": share(same), "examples": shown,
        "training": {"millionTokens": round(state.get("tokens", 0) / 1e6, 1), "minutes": round(state.get("spent", 0) / 60)}, "load": load_cost([folder / IN_PLACE]),
    })
    _write_problems(COUNT)
    print_scores({gate: entry["score"] for gate, entry in scores.items()} | {"story perplexity": round(float(np.exp(-likelihood.mean())), 3), "identical": share(same)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m models.training.tiny_chat.evaluate", description="Measure the exported files on fresh held-out problems; writes nothing.")
    parser.add_argument("--count", type=int, default=FRESH)
    parser.add_argument("--seed", default="fresh")
    print_scores(fresh_scores(**vars(parser.parse_args())))
