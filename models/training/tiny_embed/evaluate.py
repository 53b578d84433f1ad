"""Retrieval with the exported file."""

from dataclasses import asdict

import numpy as np

from ..common.encoder_run import EncoderRun
from ..common.errors import refuse
from ..common.layout import write_json
from ..common.paths import EVALS, model_dir
from ..common.report import load_cost, print_scores, write_eval
from .export import FILE
from .train import NAME
from .trials import Trial, paraphrases, questions, unseen_words

TRIALS = {"paraphrase": (paraphrases, 1, 0.9), "question": (questions, 5, 0.9), "unseenWords": (unseen_words, 1, 0.8)}
CORPUS = """Water the roses early in the morning.|The library opens at nine.|A ticket to Berlin costs forty euros.
Bread needs flour, water, salt and yeast.|The cat sleeps on the sofa.|Our server has sixteen cores.|The museum is closed on Mondays.
Change your password every year.|The train to Paris leaves at noon.|Tomatoes grow well in the sun.|The doctor is in room seven.
Send the letter to the tax office.|The bridge was built last year.|Dogs must be kept on a lead.|The meeting starts after lunch.
The soup is made of potatoes.|Turn off the lights at night.|The key is under the stone.|Children pay half the price.|The shop sells old lamps."""
QUESTIONS = """when does the library open|how much is a ticket to berlin|ingredients of bread|where is the cat|number of cores of the server
is the museum open on monday|how often must i change my password|departure of the train to paris|which plants like sun|in which room is the doctor
where do i send the letter|when was the bridge built|rules for dogs|when is the meeting|what is in the soup|what to do with the lights
where is the key|price for children|who sells lamps|when should roses be watered"""
ANSWERS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 0]


def mini_corpus() -> Trial:
    """Twenty sentences and questions written by hand, outside the generator."""
    return Trial(QUESTIONS.replace("\n", "|").split("|"), CORPUS.replace("\n", "|").split("|"), ANSWERS)


def recall(run: EncoderRun, trial: Trial, top: int) -> float:
    """Share of queries whose document is among the best `top`."""
    scores = run.embed(trial.queries) @ run.embed(trial.documents).T
    best = np.argsort(-scores, axis=1)[:, :top]
    return round(float(np.mean([right in row for right, row in zip(trial.right, best, strict=True)])), 3)


def evaluate() -> None:
    """Measure and write eval.json and the problems for the tests."""
    folder = model_dir(NAME)
    if not (folder / FILE).is_file():
        refuse(f"{folder} has no exported model: run `export` first.")
    run, scores = EncoderRun(folder, FILE), {}
    for name, (make, top, wanted) in TRIALS.items():
        trial = make(f"evaluate/{name}")
        scores[name] = {"score": recall(run, trial, top), "top": top, "of": len(trial.documents), "wanted": wanted}
        scores[name]["top1"] = recall(run, trial, 1)
    scores["handWritten"] = {"score": recall(run, mini_corpus(), 1), "top": 1, "of": 20, "top3": recall(run, mini_corpus(), 3)}
    write_eval(NAME, {"gates": scores, "load": load_cost([folder / FILE])})
    shown = {name: asdict(make(f"evaluate/{name}")) | {"top": top, "wanted": wanted} for name, (make, top, wanted) in TRIALS.items()}
    write_json(EVALS / f"{NAME}.json", {"trials": shown | {"handWritten": asdict(mini_corpus()) | {"top": 1}}}, compact=True)
    print_scores({name: entry for name, entry in scores.items()})
