"""The values of arguments that code can read off a question, and what of the question they use up."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from fsm_agent.clients.local.functions.fields import Field
from fsm_agent.clients.local.functions.grammar import quoted
from fsm_agent.clients.local.functions.question import Number, Question, as_json, without
from fsm_agent.clients.local.functions.words import stems

_NUMERIC = ("integer", "number")
_OF_FLAGS = stems("include is has have with show use allow enable only")
_VAGUE = stems("name type value id")
_PLACES: tuple[tuple[Any, ...], ...] = (  # words in an argument's name, and the prepositions before its value
    ({"from", "origin", "source", "start", "departure", "starting"}, "from"),
    ({"to", "destination", "target", "end", "arrival", "ending"}, "to", "into"),
    ({"by", "artist", "author", "director", "writer", "composer", "singer", "creator"}, "by"),
)
_NEGATION = re.compile(r"\b(?:no|not|without|don't|except|exclud\w+)\W+(?:\w+\W+){0,2}$", re.I)
_FRACTION = re.compile(r"decimal|fraction|between 0 and 1|0 to 1|\b0?\.\d")
_COUNT = re.compile(r"\b(?:count|quantity|num|number of|how many)\b", re.I)
_STATE = re.compile(r"(?<=[a-z]),? ([A-Z]{2})$")  # behind a city, in America
_NAME = re.compile(r"(?:[A-Z\d][^\s,]*(?:,? |$))+")  # of a person or place: all words have capitals
_EDGES = re.compile(r"^[\s'\"(\[.,;:]+|[\s'\"\])\].,;:!?]+$")
_DATE = re.compile(r"\b(?:YYYY|MM|DD)([-/.])(?:MM|DD)\1(?:YYYY|MM|DD)\b", re.I)


class Reading:
    """The arguments so far, and what of the question they have used up."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self.used: list[str] = []
        self.arguments: dict[str, Any] = {}

    def take(self, field: Field, value: Any) -> None:
        """Keep the value of an argument, and what it uses up."""
        self.arguments[field.name] = value
        if field.enum or isinstance(value, bool):
            return
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int | float):
                shown = [number for number in self._question.numbers if as_json(item) in number.values]
                self.used += [as_json(item), *[self._question.text[number.start : number.end] for number in shown]]
            else:
                self.used.append(item if isinstance(item, str) else quoted(item))

    def states(self, field: Field, others: Sequence[Field]) -> bool:
        """Return True if the question states this optional argument, beside those that are filled in."""
        mentioned = self._question.mentioned(field.enum or field.examples)
        if field.enum or mentioned:
            return any(value != field.schema.get("default") for value in mentioned)
        match field.kind:
            case "boolean":
                return self._flag(field) is not None
            case "integer" | "number":
                return self._is_counted(field, others)
            case "string":
                return bool(self._moment(field) or self._placed(field)) or self._is_named(field)
        return False

    def value(self, field: Field, later: Sequence[Field]) -> tuple[Any, bool]:
        """Return the value of an argument if code can read it off the question, and whether it can.

        Args:
            field: The argument.
            later: The arguments that are filled in behind it.
        """
        mentioned = self._question.mentioned(field.enum or field.examples)
        if field.kind == "array" and field.enum:
            return mentioned, bool(mentioned)
        if len(mentioned) == 1:
            return (mentioned[0] if field.enum else self._whole(field, str(mentioned[0]))), True
        if field.enum:
            return None, False
        value: Any = None
        match field.kind:
            case "boolean":
                value = self._flag(field)
            case "integer" | "number":
                value = self._number(field, later)
            case "array":
                value = self._list(field)
            case "string":
                placed = self._placed(field)
                name = placed[0] if len(placed) == 1 and _NAME.fullmatch(placed[0]) else None
                value = self._moment(field) or name
        return value, value is not None

    def phrases(self, field: Field, later: Sequence[Field]) -> Sequence[str]:
        """Return the phrases of which a text may be copied: of "from" and "to", those behind the right one."""
        if own := self._placed(field):
            return own
        others = {phrase for other in later for phrase in self._placed(other)}
        return [phrase for phrase in self._question.phrases if phrase not in others] or self._question.phrases

    def tidied(self, field: Field, value: Any) -> Any:
        """Return a copied value without what is not part of it, texts in the form of the argument's examples."""
        if isinstance(value, list):
            items = [_trimmed(item) if isinstance(item, str) else item for item in value]
            return [item for index, item in enumerate(items) if not isinstance(item, str) or item not in items[:index]]
        if not isinstance(value, str):
            return value
        value = _trimmed(value)
        if whole := next((text for text in self._question.quoted if _trimmed(text) == value), ""):
            return whole
        value = self._whole(field, value)
        head, _, tail = value.rpartition(" ")
        if head and tail.islower() and stems(tail) & stems(f"{field.words} {field.description}"):
            value = head  # "jazz music" for a genre of music
        if any(_STATE.search(example) for example in field.examples):
            value = _STATE.sub(r", \1", value)
        if field.words.endswith("city") and "," in value and "," not in field.description:
            value = value.partition(",")[0]
        return value

    def _whole(self, field: Field, value: str) -> str:
        """Return a text with what belongs to it before the argument's own name: of "slightly bitter taste", say."""
        for phrase in self._question.phrases:
            head, _, tail = phrase.rpartition(" ")
            if value.islower() and head.endswith(f" {value}") and stems(tail) & stems(field.words):
                return head.rpartition(", ")[2]
        return value

    def _flag(self, field: Field) -> bool | None:
        """Return the value of a flag that the question names; None if it does not."""
        position = self._question.position_of_stems(stems(field.words) - _OF_FLAGS)
        return None if position is None else not _NEGATION.search(self._question.text[:position])

    def _list(self, field: Field) -> list[Any] | None:
        """Return numbers that stand together, or several texts in quotation marks."""
        kind = field.items.get("type")
        for run in self._question.runs if kind in _NUMERIC else ():
            values = [number.values[0] for number in run]
            if not set(values) <= set(self.used):
                return [json.loads(value) for value in values]
        return list(self._question.quoted) if kind == "string" and len(self._question.quoted) > 1 else None

    def _is_counted(self, field: Field, others: Sequence[Field]) -> bool:
        """Return True if a number is left that is beside this argument's name or unit, or can be of no other."""
        left = [number for number in self._left if values_of(field, number)]
        rivals = [other for other in others if other.kind in _NUMERIC and other.name not in self.arguments]
        if len(left) == 1 and rivals == [field]:
            about = f"{field.words} {field.description}"
            if self._question.text[left[0].start].isdigit() or _COUNT.search(about):  # "two" may count what is known
                return True
        return self._number(field, is_stated=True) is not None

    @property
    def _left(self) -> list[Number]:
        """The numbers that no argument has used."""
        texts = [text for text in self.used if not re.fullmatch(r"-?\d+(\.\d+)?", text)]
        left = [number for number in self._question.numbers if not set(number.values) & set(self.used)]
        shown = [self._question.text[number.start : number.end] for number in left]
        return [number for number, text in zip(left, shown, strict=True) if not any(text in used for used in texts)]

    def _number(self, field: Field, later: Sequence[Field] = (), *, is_stated: bool = False) -> Any:
        """Return the number beside which the question has words of this argument, rather than of others; or None.

        Args:
            field: The argument.
            later: Those that come behind it.
            is_stated: Take nothing that only words of its description speak for, unless they are the unit.
        """
        left = [number for number in self._left if values_of(field, number)]
        rates = [self._affinity(field, number, is_stated=is_stated) for number in left]
        if not left or max(rates) == 0 or rates.count(max(rates)) > 1:
            return None
        number = left[rates.index(max(rates))]
        rivals = [other for other in later if other.kind in _NUMERIC]
        if any(self._affinity(other, number) >= max(rates) for other in rivals):
            return None
        values = values_of(field, number)
        return json.loads(values[0]) if len(values) == 1 else None

    def _affinity(self, field: Field, number: Number, *, is_stated: bool = False) -> int:
        """Return how much speaks for it that a number is this argument."""
        name, text = stems(field.words), self._question.text
        if "year" in name and re.fullmatch(r"1\d{3}|20\d\d", number.values[0]):
            return 4
        if re.search(rf"\b{re.escape(field.name)}\s*(?:=|:|is|of|as|to)?\s*$", text[: number.start], re.I):
            return 9  # as in "a=2"
        before, behind = self._question.words_near(number)
        about = stems(field.description) - name
        is_unit = bool(behind & (name | about))
        if is_stated and not is_unit and not before & name:
            return 0
        return 2 * len((before | behind) & name) + len((before | behind) & about) + is_unit

    def _moment(self, field: Field) -> str | None:
        """Return the first date or time of day that is not used, in the form that the description wants."""
        form = _DATE.search(field.description)
        if form or field.schema.get("format") == "date":
            wanted = form.group().upper() if form else "YYYY-MM-DD"
            wanted = wanted.replace("YYYY", "%Y").replace("MM", "%m").replace("DD", "%d")
            texts = [date.strftime(wanted) for _, date in self._question.dates]
        elif "HH:MM" in field.description.upper() or field.schema.get("format") == "time":
            texts = [time for _, time in self._question.times]
        else:
            return None
        return next((text for text in texts if text not in self.used), texts[-1] if texts else None)

    def _placed(self, field: Field) -> list[str]:
        """Return the phrases behind "from", "to" or "by", if the argument is named for one of them."""
        words = set(field.words.split())
        if field.kind != "string" or field.enum:
            return []
        for names, *prepositions in _PLACES:
            if words & names:
                return [phrase for phrase in self._question.after(*prepositions) if phrase not in self.used]
        return []

    def _is_named(self, field: Field) -> bool:
        """Return True if the question has the words of an argument's name, and a phrase for it."""
        wanted = stems(field.words) - _VAGUE
        return bool(wanted) and wanted <= self._question.stems and bool(without(self._question.phrases, self.used))


def values_of(field: Field, number: Number) -> list[str]:
    """Return the values of a number that an argument may have."""
    values = [value for value in number.values if field.kind == "number" or re.fullmatch(r"-?\d+", value)]
    if len(values) > 1:
        about = f"{field.words} {field.description}".lower()
        if "percent" in about or "%" in about:
            return values[:1]
        if _FRACTION.search(about):
            return values[1:]
    return values


def _trimmed(text: str) -> str:
    return _EDGES.sub("", text) or text
