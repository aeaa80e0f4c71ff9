"""The arguments of a chosen function, one by one: read off the question, or copied from it by the model."""

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

MAX_TOKENS = 90  # of one value
_SYSTEM = "You fill in the arguments of a function from the user's question. Copy names and numbers from the question."
_EXAMPLES = (  # worked, with functions of no test
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
_OF_FLAGS = stems("include is has have with show use allow enable only")
_VAGUE = stems("name type value id")
_NEGATION = re.compile(r"\b(?:no|not|without|don't|except|exclud\w+)\W+(?:\w+\W+){0,2}$", re.I)
_FRACTION = re.compile(r"decimal|fraction|between 0 and 1|0 to 1|\b0?\.\d")
_STATE = re.compile(r"(?<=[a-z]),? ([A-Z]{2})$")  # behind a city, in America
_EDGES = re.compile(r"^[\s'\"(\[.,;:]+|[\s'\"\])\].,;:!?]+$")


def filled(question: Question, function: Function) -> Generator[Step, Reply, dict[str, Any]]:
    """Return the arguments of a function: the required ones, and those others that the question states."""
    fields = fields_of(function)
    filling = _Filling(question)
    required = [field for field in fields if field.is_required]
    yield from _fill(filling, question, function, required)
    for field in fields:
        if not field.is_required and filling.states(field, fields):
            yield from _fill(filling, question, function, [field])
    if fields and not filling.arguments:
        yield from _fill(filling, question, function, fields[:1])
    return filling.arguments


def _fill(
    filling: _Filling, question: Question, function: Function, fields: Sequence[Field]
) -> Generator[Step, Reply, None]:
    prompt, written = _prompt(question, function, fields), "{"
    for index, field in enumerate(fields):
        written += (", " if index else "") + quoted(field.name) + ":"
        value, is_read = filling.read(field, fields[index + 1 :])
        if not is_read:
            reply = yield completion(prompt + written, Grammar(question, filling.used).of(field.schema), MAX_TOKENS)
            value = filling.trimmed(field, _tidy(_loaded(reply.message.text)))
        written += " " + quoted(value)
        filling.take(field, value)


class _Filling:
    """The arguments so far, and what of the question they have used up."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.used: list[str] = []
        self.arguments: dict[str, Any] = {}

    def states(self, field: Field, others: Sequence[Field]) -> bool:
        """Return True if the question states this optional argument, beside those that are filled in."""
        question = self._question
        if values := field.enum or field.examples:
            return any(value != field.schema.get("default") for value in question.mentioned(values))
        match field.kind:
            case "boolean":
                return self._flag(field) is not None
            case "integer" | "number":
                return self._is_counted(field, others)
            case "string":
                return bool(self._date(field)) or self._is_named(field)
        return False

    def _is_counted(self, field: Field, others: Sequence[Field]) -> bool:
        """Return True if a number is left that is beside this argument's name or unit, or can be of no other."""
        left = [number for number in self._left if _values(field, number)]
        rivals = [other for other in others if other.kind in ("integer", "number") and other.name not in self.arguments]
        if len(left) == 1 and rivals == [field]:
            return self._question.text[left[0].start].isdigit()
        about = stems(field.words) | (stems(field.description) & self._question.units)
        return any(self._question.words_near(number) & about for number in left) and self._matching(field) is not None

    def read(self, field: Field, later: Sequence[Field]) -> tuple[Any, bool]:
        """Return the value of an argument if code can read it off the question, and whether it can."""
        question = self._question
        if field.enum:
            mentioned = question.mentioned(field.enum)
            if field.kind == "array" and mentioned:
                return mentioned, True
            return (mentioned[0], True) if len(mentioned) == 1 else (None, False)
        if field.examples and len(mentioned := question.mentioned(field.examples)) == 1:
            return self._whole(field, str(mentioned[0])), True
        match field.kind:
            case "boolean":
                flag = self._flag(field)
                return flag, flag is not None
            case "integer" | "number":
                value = self._matching(field, later)
                return value, value is not None
            case "array":
                return self._list(field)
            case "string" if date := self._date(field):
                return date, True
        return None, False

    def _flag(self, field: Field) -> bool | None:
        """Return the value of a flag that the question names; None if it does not."""
        wanted = stems(field.words) - _OF_FLAGS
        if not wanted or not wanted <= self._question.stems:
            return None
        place = self._question.place_of(" ".join(sorted(wanted))) or 0
        return not _NEGATION.search(self._question.text[:place])

    def _list(self, field: Field) -> tuple[Any, bool]:
        if field.items.get("type") in ("integer", "number"):
            for run in self._question.runs:
                values = [number.values[0] for number in run]
                if not set(values) <= set(self.used):
                    return [json.loads(value) for value in values], True
        if field.items.get("type") == "string" and len(self._question.quoted) > 1:
            return list(self._question.quoted), True
        return None, False

    @property
    def _left(self) -> list[Number]:
        """The numbers that no argument has used."""
        texts = [text for text in self.used if not _is_number(text)]
        left = [n for n in self._question.numbers if not set(n.values) & set(self.used)]
        inside = [self._question.text[n.start : n.end] for n in left]
        return [n for n, text in zip(left, inside, strict=True) if not any(text in used for used in texts)]

    def _matching(self, field: Field, later: Sequence[Field] | None = None) -> Any:
        """Return the number beside which the question has words of this argument, rather than of others; or None."""
        left = [n for n in self._left if _values(field, n)]
        rates = [self._affinity(field, number) for number in left]
        if not left or max(rates) == 0 or rates.count(max(rates)) > 1:
            return None
        number = left[rates.index(max(rates))]
        rivals = [other for other in later or () if other.kind in ("integer", "number")]
        if any(self._affinity(other, number) >= max(rates) for other in rivals):
            return None
        values = _values(field, number)
        return json.loads(values[0]) if len(values) == 1 else None

    def _affinity(self, field: Field, number: Number) -> int:
        near = self._question.words_near(number)
        if "year" in stems(field.words) and re.fullmatch(r"1\d{3}|20\d\d", number.values[0]):
            return 3
        return 2 * len(near & stems(field.words)) + len(near & (stems(field.description) - stems(field.words)))

    def _date(self, field: Field) -> str:
        form = _date_form(field)
        if not form:
            return ""
        texts = [form(date) for _, date in self._question.dates]
        return next((text for text in texts if text not in self.used), texts[-1] if texts else "")

    def _is_named(self, field: Field) -> bool:
        """Return True if the question has the words of an argument's name, and a phrase for it."""
        wanted = stems(field.words) - _VAGUE
        return bool(wanted) and wanted <= self._question.stems and bool(without(self._question.phrases, self.used))

    def _whole(self, field: Field, value: str) -> str:
        """Return a text with what belongs to it before the argument's own name: of "slightly bitter taste", say."""
        for phrase in self._question.phrases:
            head, _, tail = phrase.rpartition(" ")
            if value.islower() and head.endswith(f" {value}") and stems(tail) & stems(field.words):
                return head.rpartition(", ")[2]
        return value

    def trimmed(self, field: Field, value: Any) -> Any:
        """Return a copied text without the argument's own name behind it, and in the form of its examples."""
        if not isinstance(value, str) or value in self._question.quoted:
            return value
        value = self._whole(field, value)
        head, _, tail = value.rpartition(" ")
        if head and tail.islower() and stems(tail) & stems(f"{field.words} {field.description}"):
            value = head
        if any(_STATE.search(example) for example in field.examples):
            value = _STATE.sub(r", \1", value)
        if field.words.endswith("city") and "," in value and "," not in field.description:
            value = value.partition(",")[0]
        return value

    def take(self, field: Field, value: Any) -> None:
        """Keep a value, and what it used up."""
        self.arguments[field.name] = value
        if field.enum or isinstance(value, bool):
            return
        for item in value if isinstance(value, list) else [value]:
            self.used.append(item if isinstance(item, str) else as_json(item) if _is_plain(item) else quoted(item))


def _is_plain(item: Any) -> bool:
    return isinstance(item, int | float)


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(\.\d+)?", text))


def _values(field: Field, number: Number) -> list[str]:
    """Return the values of a number that an argument may have."""
    values = [value for value in number.values if field.kind == "number" or re.fullmatch(r"-?\d+", value)]
    if len(values) > 1:
        about = f"{field.words} {field.description}".lower()
        if "percent" in about or "%" in about:
            return values[:1]
        if _FRACTION.search(about):
            return values[1:]
    return values


def _date_form(field: Field) -> Any:
    if field.schema.get("format") == "date" or re.search(r"YYYY-MM-DD", field.description, re.I):
        return lambda date: date.isoformat()
    if re.search(r"MM/DD/YYYY", field.description, re.I):
        return lambda date: date.strftime("%m/%d/%Y")
    return None


def _prompt(question: Question, function: Function, keys: Sequence[Field]) -> str:
    about = f"{function.name}: {first_sentence(function.description)}"
    turns = [*_EXAMPLES, (about, "\n".join([field.hint for field in keys]), question.text, "")]
    texts = [f"<|im_start|>system\n{_SYSTEM}<|im_end|>\n"]
    for described, arguments, asked, answer in turns:
        user = f"Function: {described}\nArguments:\n{arguments}\nQuestion: {asked}"
        end = f"{answer}<|im_end|>\n" if answer else ""
        texts.append(f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{end}")
    return "".join(texts)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # cut off at the limit
        return text.strip().strip('"')


def _tidy(value: Any) -> Any:
    if isinstance(value, str):
        return _EDGES.sub("", value) or value
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return value
