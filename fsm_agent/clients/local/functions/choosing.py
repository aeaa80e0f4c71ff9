"""Choose the function whose description best explains a question, if one explains it well enough."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Generator, Sequence

from fsm_agent.clients.local.functions.fields import Field, fields_of, first_sentence
from fsm_agent.clients.local.functions.question import Question, spaced, stems
from fsm_agent.clients.local.functions.wire import Step, completion, tokens
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Reply

MAX_TOKENS = 60  # how many tokens at the end of a question are scored
MAX_SCORED = 8  # how many functions are scored; `hints` chooses among more
THRESHOLD = 6.0  # nats; docs/providers.md explains the choice
UNSCORED_THRESHOLD = 4.0  # where only `hints` is known
PER_WORD, MOST_WORDS = 4.0, 3
PER_NUMBERS = 6.0  # added if the question has the numbers that the function needs, otherwise subtracted
PER_ENUM = 4.0  # for each enum with a value in the question
_NOTHING = "Function: Do something.\nUser's request: "


def chosen(question: Question, functions: Sequence[Function], must: bool) -> Generator[Step, Reply, Function | None]:
    """Return the function that a question asks for.

    If no function fits, return the best one if ``must`` is set, else None.
    """
    if must and len(functions) == 1:
        return functions[0]
    if len(functions) > MAX_SCORED:
        functions = sorted(functions, key=lambda function: -hints(question, function))[:MAX_SCORED]
    gains = yield from explained(question, functions)
    scores = [hints(question, function) for function in functions]
    if gains:
        scores = [gain + score for gain, score in zip(gains, scores, strict=True)]
    best = max(range(len(functions)), key=lambda index: scores[index])
    threshold = THRESHOLD if gains else UNSCORED_THRESHOLD
    return functions[best] if must or scores[best] > threshold else None


def explained(question: Question, functions: Sequence[Function]) -> Generator[Step, Reply, list[float]]:
    """Return how many nats likelier the question is after each function's description than after a neutral one.

    Only ASCII letters are scored, because the server cannot report tokens that are parts of non-ASCII letters.  The
    list is empty if most of the question's letters are not ASCII.
    """
    folded = unicodedata.normalize("NFKD", question.text).encode("ascii", "ignore").decode()
    folded = "".join([letter if letter.isprintable() else " " for letter in folded])
    if sum(map(str.isalpha, folded)) * 2 < sum(map(str.isalpha, question.text)):
        return []
    ids = json.loads((yield tokens(folded)).message.text)[-MAX_TOKENS:]
    forced = "root ::= " + " ".join([f"<[{id}]>" for id in ids])
    likelihoods = list[float]()
    for prompt in (_NOTHING, *map(_prompt, functions)):
        reply = yield completion(prompt, forced, len(ids), logprobs=True)
        likelihoods.append(sum([token.logprob for token in reply.logprobs[: len(ids)]]))
    return [likelihood - likelihoods[0] for likelihood in likelihoods[1:]]


def _prompt(function: Function) -> str:
    fields = fields_of(function)
    names = [field.words for field in fields if field.is_required] or [field.words for field in fields[:3]]
    described = f"{spaced(function.name)}: {first_sentence(function.description)} ({', '.join(names)})"
    return f"Function: {described}\nUser's request: "


def hints(question: Question, function: Function) -> float:
    """Return a function's score, based on words shared with the question, required numbers, and enum values."""
    fields = fields_of(function)
    shared = len(question.stems & _words(function, fields))
    required = [field for field in fields if field.is_required]
    score = PER_WORD * min(shared, MOST_WORDS)
    if needed := sum(field.kind in ("integer", "number") and not field.enum for field in required):
        score += PER_NUMBERS if len(question.numbers) >= needed else -PER_NUMBERS
    return score + PER_ENUM * sum(bool(field.enum and question.mentioned(field.enum)) for field in fields)


def _words(function: Function, fields: Sequence[Field]) -> frozenset[str]:
    about_fields = [f"{field.words} {field.description} {' '.join(map(str, field.enum))}" for field in fields]
    return stems(" ".join([spaced(function.name), function.description, *about_fields]))
