"""Fill in the arguments of a chosen function: code reads them from the question, or the model copies them from it."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from typing import Any

from fsm_agent.clients.local.functions.fields import Field, fields_of, first_sentence
from fsm_agent.clients.local.functions.grammar import Grammar, quoted
from fsm_agent.clients.local.functions.question import Question
from fsm_agent.clients.local.functions.reading import Reading
from fsm_agent.clients.local.functions.wire import Step, completion
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Reply

MAX_TOKENS = 90  # per value
_SYSTEM = "You fill in the arguments of a function from the user's question. Copy names and numbers from the question."
_ITEM = re.compile(r'"(?:[^"\\]|\\.)*"')
_EXAMPLES = (  # worked examples, with functions that no test uses
    (
        "find_train: Find trains between two stations.",
        "- origin (string): The station to leave from.\n- destination (string): The station to arrive at.\n"
        "- seats (integer): How many seats.",
        "Are there still three seats from Oslo to Bergen?",
        '{"origin": "Oslo", "destination": "Bergen", "seats": 3}',
    ),
    (
        "mix_paint: Mix a paint.",
        "- colors (list of strings): The colors to mix.\n- litres (number): How much.\n"
        "- finish (one of matte, gloss): The finish.",
        "Please mix 2.5 litres of red and dark blue, and make it shiny.",
        '{"colors": ["red", "dark blue"], "litres": 2.5, "finish": "gloss"}',
    ),
    (
        "play_song: Play a song.",
        "- title (string): The title of the song.\n- repeat (boolean): Whether to play it again and again.",
        "Put on 'Yellow Submarine' for me, only once.",
        '{"title": "Yellow Submarine", "repeat": false}',
    ),
)


def filled(
    question: Question, function: Function, *, copies_only: bool = False
) -> Generator[Step, Reply, dict[str, Any]]:
    """Return the arguments of a function: the required ones, and the optional ones that the question states.

    If the question does not contain a number or text, its value is None with ``copies_only``.  Otherwise the model
    makes it up.
    """
    fields, reading = fields_of(function), Reading(question)
    required = [field for field in fields if field.is_required]
    if copies_only:
        required.sort(key=lambda field: field.kind == "string" and not field.enum)  # numbers first
    yield from _fill(reading, question, function, required, copies_only)
    for field in fields:
        if not field.is_required and reading.states(field, fields):
            yield from _fill(reading, question, function, [field], copies_only)
    return {field.name: reading.arguments[field.name] for field in fields if field.name in reading.arguments}


def _fill(
    reading: Reading, question: Question, function: Function, fields: Sequence[Field], copies_only: bool
) -> Generator[Step, Reply, None]:
    """Fill in the fields one after the other.  For each, the model sees the earlier ones."""
    written = _prompt(question, function, fields) + "{"
    for index, field in enumerate(fields):
        written += (", " if index else "") + quoted(field.name) + ":"
        value, is_read = reading.value(field)
        if not is_read:
            grammar = Grammar(question, reading.used)
            if grammar.can_copy(field.schema) or not copies_only:
                reply = yield completion(written, grammar.of(field.schema), MAX_TOKENS)
                value = reading.trimmed(_loaded(reply.message.text))
        written += " " + quoted(value)
        reading.take(field, value)


def _prompt(question: Question, function: Function, keys: Sequence[Field]) -> str:
    about = f"{function.name}: {first_sentence(function.description)}"
    turns = [*_EXAMPLES, (about, "\n".join([field.hint for field in keys]), question.text, "")]
    texts = [f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n"]
    for described, arguments, asked, answer in turns:
        user = f"Function: {described}\nArguments:\n{arguments}\nQuestion: {asked}".replace("<|", "< |")
        end = f"{answer}<|im_end|>\n" if answer else ""
        texts.append(f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{end}")
    return "".join(texts)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # cut off at `MAX_TOKENS`
        items = [json.loads(item) for item in _ITEM.findall(text)]
        return items if text.strip().startswith("[") else items[0] if items else text.strip().strip('"')
