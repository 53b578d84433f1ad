"""How much better the ten best of tiny-embed become when tiny-rerank sorts them."""

import numpy as np

from ..common.encoder_run import EncoderRun
from ..common.errors import refuse
from ..common.layout import write_json
from ..common.paths import EVALS, model_dir
from ..common.report import load_cost, print_scores, write_eval
from ..tiny_embed.evaluate import mini_corpus
from ..tiny_embed.export import FILE as ENCODER_FILE
from ..tiny_embed.train import NAME as ENCODER
from ..tiny_embed.trials import Trial, paraphrases, passages, questions, unseen_words
from .export import FILE
from .train import NAME

TOP = 10
TRIALS = {"paraphrase": paraphrases, "question": questions, "unseenWords": unseen_words, "passage": passages, "handWritten": lambda _: mini_corpus()}


def compare(encoder: EncoderRun, reranker: EncoderRun, trial: Trial) -> tuple[dict[str, float], list[dict[str, object]]]:
    """R@1 before and after, mean reciprocal rank after, and the groups that were sorted."""
    near = np.argsort(-(encoder.embed(trial.queries) @ encoder.embed(trial.documents).T), axis=1)[:, :TOP]
    before, after, ranks, groups = [], [], [], []
    for query, right, row in zip(trial.queries, trial.right, near, strict=True):
        if right not in row:
            continue
        scores = reranker.score([(query, trial.documents[i]) for i in row])
        order = [int(row[i]) for i in np.argsort(-scores)]
        before.append(int(row[0]) == right)
        after.append(order[0] == right)
        ranks.append(1 / (order.index(right) + 1))
        groups.append({"query": query, "documents": [trial.documents[i] for i in row], "right": [int(i) for i in row].index(right)})
    means = {"before": before, "after": after, "meanReciprocalRank": ranks}
    return {name: round(float(np.mean(values)), 3) for name, values in means.items()} | {"queries": len(before)}, groups


def evaluate() -> None:
    """Measure and write eval.json and the groups for the tests."""
    folder, other = model_dir(NAME), model_dir(ENCODER)
    if not (folder / FILE).is_file() or not (other / ENCODER_FILE).is_file():
        refuse(f"{folder} and {other} need an exported model each: run `export` first.")
    encoder, reranker = EncoderRun(other, ENCODER_FILE), EncoderRun(folder, FILE)
    scores: dict[str, dict[str, float]] = {}
    shown = {}
    for name, make in TRIALS.items():
        scores[name], groups = compare(encoder, reranker, make(f"rerank/{name}"))
        shown[name] = groups[:20]
    gain = sum(s["after"] - s["before"] for s in scores.values()) / len(scores)
    scores["gain"] = {"score": round(gain, 3), "wanted": 0.05}
    write_eval(NAME, {"gates": scores, "load": load_cost([folder / FILE])})
    write_json(EVALS / f"{NAME}.json", {"groups": shown}, compact=True)
    print_scores(scores)
