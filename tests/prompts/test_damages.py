"""Is what models do to JSON undone: each damage, to each document?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from fsm_agent.prompts import Output

DOCUMENTS: list[Any] = [
    {"name": "Ann", "age": 31},
    {"a": [1, 2, {"b": None}], "ok": True},
    {"title": "It is late", "tags": ["x", "y"]},
    [1, 2.5, "three"],
    [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}],
    {"n": {"m": {"k": "deep"}}},
    {"empty": [], "o": {}, "s": ""},
]
DAMAGES: dict[str, Callable[[Any], str]] = {
    "none": json.dumps,
    "lines": lambda value: json.dumps(value, indent=2).replace(": ", ":\n"),
    "a fence": lambda value: f"Sure!\n```json\n{json.dumps(value, indent=1)}\n```\nBye.",
    "a trailing comma": lambda value: json.dumps(value)[:-1] + "," + json.dumps(value)[-1],
    "single quotes": lambda value: repr(value).replace("None", "null").replace("True", "true"),
    "Python": repr,
    "names without quotes": lambda value: re.sub(r'"(\w+)":', r"\1:", json.dumps(value)),
    "smart quotes": lambda value: re.sub(r'"(\w+)":', r"“\1”:", json.dumps(value)),
    "prose before": lambda value: f"The answer is: {json.dumps(value)}",
    "prose behind": lambda value: f"{json.dumps(value)}\nI hope this helps.",
    "comments": lambda value: "// it\n" + json.dumps(value).replace(", ", ", /* c */ "),
    "no end": lambda value: json.dumps(value)[:-1],
}


def test_what_was_done_to_a_document_is_undone():
    for damage, damaged in DAMAGES.items():
        for value in DOCUMENTS:
            assert Output(type(value)).parse(damaged(value)) == value, damage
