"""Fill in a chosen function's arguments: code reads them from the question, or the model copies them."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from typing import Any

from fsm_agent.clients.local.functions.fields import Field, fields_of, first_sentence
from fsm_agent.clients.local.functions.grammar import Grammar, quoted
from fsm_agent.clients.local.functions.question import Number, Question, as_json, stems, without
from fsm_agent.clients.local.functions.wire import Step, completion
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Reply

_NUMERIC = ("integer", "number")
_OF_FLAGS = stems("include is has have with show use allow enable only")
_VAGUE = stems("name type value id")
_NEGATION = re.compile(r"\b(?:no|not|without|don't|except|exclud\w+)\W+(?:\w+\W+){0,2}$", re.I)
_EDGES = re.compile(r"^[\s'\"(\[.,;:]+|[\s'\"\])\].,;:!?]+$")


class Reading:
    """The arguments so far, and the parts of the question that they have used."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.used: list[str] = []
        self.arguments: dict[str, Any] = {}

    def take(self, field: Field, value: Any) -> None:
        self.arguments[field.name] = value
        if field.enum or isinstance(value, bool):
            return
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int | float):
                shown = [number for number in self._question.numbers if as_json(item) == number.value]
                self.used += [as_json(item), *[self._question.text[number.start : number.end] for number in shown]]
            else:
                self.used.append(item if isinstance(item, str) else quoted(item))

    def states(self, field: Field, others: Sequence[Field]) -> bool:
        """Return True if the question states this optional argument in addition to the arguments filled in."""
        if field.enum:
            return any(value != field.schema.get("default") for value in self._question.mentioned(field.enum))
        match field.kind:
            case "boolean":
                return self._flag(field) is not None
            case "integer" | "number":
                return self._is_counted(field, others)
            case "string":
                return self._is_named(field)
        return False

    def value(self, field: Field) -> tuple[Any, bool]:
        """Return `(value, found)`: the argument's value as read from the question, and whether it was found."""
        if field.enum:
            mentioned = self._question.mentioned(field.enum)
            if field.kind == "array":
                return mentioned, bool(mentioned)
            return (mentioned[0], True) if len(mentioned) == 1 else (None, False)
        value: Any = None
        match field.kind:
            case "boolean":
                value = self._flag(field)
            case "integer" | "number":
                left = {number.value for number in self._left(field)}
                value = json.loads(left.pop()) if len(left) == 1 else None
            case "array":
                value = self._list(field)
        return value, value is not None

    def trimmed(self, value: Any) -> Any:
        """Return a copied value without the punctuation at its ends, unless it is a quotation."""
        if isinstance(value, list):
            items = [_trimmed(item) if isinstance(item, str) else item for item in value]
            return [item for index, item in enumerate(items) if not isinstance(item, str) or item not in items[:index]]
        if not isinstance(value, str):
            return value
        value = _trimmed(value)
        return next((text for text in self._question.quoted if _trimmed(text) == value), value)

    def _flag(self, field: Field) -> bool | None:
        position = self._question.position_of_stems(stems(field.words) - _OF_FLAGS)
        return None if position is None else not _NEGATION.search(self._question.text[:position])

    def _list(self, field: Field) -> list[Any] | None:
        kind = field.items.get("type")
        for run in self._question.runs if kind in _NUMERIC else ():
            values = [number.value for number in run]
            if not set(values) <= set(self.used):
                return [json.loads(value) for value in values]
        return list(self._question.quoted) if kind == "string" and len(self._question.quoted) > 1 else None

    def _is_counted(self, field: Field, others: Sequence[Field]) -> bool:
        """Return True if only one number in digits is left, and no other argument can use it."""
        left = self._left(field)
        rivals = [other for other in others if other.kind in _NUMERIC and other.name not in self.arguments]
        return len(left) == 1 and rivals == [field] and self._question.text[left[0].start].isdigit()

    def _left(self, field: Field) -> list[Number]:
        texts = [text for text in self.used if not re.fullmatch(r"-?\d+(\.\d+)?", text)]
        return [
            number
            for number in self._question.numbers
            if (field.kind == "number" or re.fullmatch(r"-?\d+", number.value))
            and number.value not in self.used
            and not any(self._question.text[number.start : number.end] in used for used in texts)
        ]

    def _is_named(self, field: Field) -> bool:
        wanted = stems(field.words) - _VAGUE
        return bool(wanted) and wanted <= self._question.stems and bool(without(self._question.phrases, self.used))


def _trimmed(text: str) -> str:
    return _EDGES.sub("", text) or text


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
    """Return a function's arguments: the required ones, and the optional ones that the question states.

    With ``copies_only``, a number or text that the question does not contain becomes None; otherwise the model makes it
    up.
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
    """Fill in the fields one by one, so that for each, the model sees the earlier ones."""
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
