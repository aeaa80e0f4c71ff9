"""Grammars for argument values that can be copied from a question, in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent.clients.local.functions.question import UNSPACED, Question, without

MAX_CHUNKS = 400  # per phrase
_CHUNK = re.compile(rf"\s+|{UNSPACED}|\w+(?:[-'\u2019.@:/\\_+&]{{1,2}}\w+)*|[^\w\s]+")
_SHORT = re.compile(f"{UNSPACED}{{1,6}}")  # a name by itself
_NOT_EMPTY = r"/[^ ](.*[^ ])?/"
_MOST_ITEMS = 6


class Grammar:
    """The values that one argument may have according to its resolved schema.

    Values that other arguments have used are left out, unless no other values remain.
    """

    def __init__(self, question: Question, used: Sequence[str]) -> None:
        self._question = question
        self._used = used
        self._rules: dict[str, str] = {}

    def of(self, schema: Mapping[str, Any]) -> str:
        """Return the grammar for a value that fits this schema, including the space before it."""
        start = f'" " {self._value(schema)}'
        return "\n".join(
            ["%llguidance {}", f"start: {start}", *[f"{name}: {body}" for body, name in self._rules.items()]]
        )

    def can_copy(self, schema: Mapping[str, Any]) -> bool:
        """Return True if the question contains a value that fits this schema, or if the schema lists all values."""
        if schema.get("enum"):
            return True
        match schema.get("type"):
            case "integer" | "number" as kind:
                return bool(self._numbers(kind))
            case "array":
                return self.can_copy(schema.get("items") or {})
            case "boolean" | "object":
                return True
        return bool(without(self._question.phrases, self._used))

    def _rule(self, body: str, kind: str = "r") -> str:
        return self._rules.setdefault(body, f"{kind}{len(self._rules)}")  # terminals have capitals

    def _one_of(self, values: Sequence[str]) -> str:
        return self._rule(" | ".join([quoted(value) for value in values]))

    def _value(self, schema: Mapping[str, Any]) -> str:
        if enum := schema.get("enum"):
            return self._one_of([quoted(value) for value in enum])
        match schema.get("type"):
            case "boolean":
                return self._one_of(["true", "false"])
            case "integer" | "number" as kind:
                numbers = self._numbers(kind)
                return self._one_of(numbers) if numbers else _digits(kind)
            case "array":
                value = self._value(schema.get("items") or {})
                return self._rule(f'"[" {value} (", " {value}){{0,{_MOST_ITEMS}}} "]"')
            case "object" if properties := schema.get("properties"):
                wanted = [name for name in properties if name in schema.get("required", properties)]
                pairs = [f"{quoted(f'{quoted(name)}: ')} {self._value(properties[name])}" for name in wanted]
                return self._rule('"{" ' + ' ", " '.join(pairs) + ' "}"')
            case "object":
                return '"{}"'
        return self._text()

    def _numbers(self, kind: str) -> list[str]:
        values = [number.value for number in self._question.numbers]
        fitting = [value for value in values if kind == "number" or re.fullmatch(r"-?\d+", value)]
        return list(dict.fromkeys([value for value in fitting if value not in self._used] or fitting))

    def _text(self) -> str:
        phrases = without(self._question.phrases, self._used) or [self._question.text]
        chunks = [_chunks(phrase, is_begin=self._question.text.startswith(phrase)) for phrase in phrases]
        names = [self._rule(f'%regex {{"substring_chunks": {quoted(pieces)}}}', "P") for pieces in chunks]
        text = self._rule(f"({' | '.join(names)}) & {_NOT_EMPTY}", "T")
        return f'"\\"" {text} "\\""'


def _chunks(phrase: str, *, is_begin: bool) -> list[str]:
    """Return the JSON-escaped pieces that a copy of the phrase may consist of: words, and names with several words."""
    if _SHORT.fullmatch(phrase):
        return [phrase]
    chunks = list[str]()
    for chunk in _CHUNK.findall(phrase)[:MAX_CHUNKS]:
        goes_on = len(chunks) > 1 and chunks[-1].isspace() and chunk[0].isupper() and chunks[-2][0].isupper()
        if goes_on and not (is_begin and len(chunks) == 2):
            blank = chunks.pop()
            chunks[-1] += blank + chunk
        else:
            chunks.append(chunk)
    return [quoted(chunk)[1:-1] for chunk in chunks]


def _digits(kind: str) -> str:
    return "/-?[0-9]{1,9}/" if kind == "integer" else r"/-?[0-9]{1,9}(\.[0-9]{1,6})?/"


def quoted(value: object) -> str:
    """Return a value as JSON, without escaping non-ASCII letters."""
    return json.dumps(value, ensure_ascii=False)
