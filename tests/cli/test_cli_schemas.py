"""Does ``--schema`` take fields, a JSON Schema and a file with one, and refuse what is none?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import MODEL, ran, refused

from fsm_agent.testing import Script

OLD = {"type": "object", "properties": {"of": {"$ref": "#/$defs/Age"}}, "required": ["of"]}
AGE = {"$defs": {"Age": {"type": "integer", "minimum": 1}}}


@pytest.mark.parametrize(
    ("given", "wrong", "right"),
    [
        ("age", '{"age": 7}', '{"age": "7"}'),
        ("name: the full name, age int", '{"name": "Ann"}', '{"name": "Ann", "age": 33}'),
        ("p float\ngood bool", '{"p": "x", "good": true}', '{"p": 0.5, "good": true}'),
        (json.dumps(OLD | AGE), '{"of": 0}', '{"of": 7}'),
        ("old.json", '{"of": "x"}', '{"of": 7}'),
    ],
)
def test_an_answer_is_held_to_it(given: str, wrong: str, right: str, model: Callable[..., Script], here: Path):
    (here / "old.json").write_text(json.dumps(OLD | AGE))
    script = model(wrong, right)
    ended = ran("ask", "?", *MODEL, "--schema", given)
    assert json.loads(ended.stdout) == json.loads(right)
    assert len(script.requests) == 2


def test_what_a_field_is_reaches_the_model(model: Callable[..., Script]):
    script = model('{"name": "Ann"}')
    ran("ask", "?", *MODEL, "--schema", "name: the full name")
    assert "the full name" in str(script.requests[0].output.schema)


def layers(depth: int, width: int) -> str:
    """A schema with references of so many to so many, on so many floors."""
    floors = {f"L{n}": {"type": "array", "items": [{"$ref": f"#/$defs/L{n + 1}"}] * width} for n in range(depth)}
    return json.dumps({"$ref": "#/$defs/L0", "$defs": {**floors, f"L{depth}": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("given", "at_fault"),
    [
        ("{", "JSON"),
        ("", "schema"),
        ("age whole", "'age whole'"),
        ("age, age", "'age'"),
        ('{"$ref": "#/$defs/X", "$defs": {"X": {"$ref": "#/$defs/X"}}}', "'#/$defs/X'"),
        ('{"$ref": "#/$defs/Y"}', "'#/$defs/Y'"),
        ('{"$ref": "https://example.org/y"}', "'https://example.org/y'"),
        (layers(30, 9), "5000"),
        ('{"enum": ["' + "x" * 100_000 + '"]}', "100000"),
        ("long.json", "100000"),
    ],
)
def test_what_is_no_schema_is_refused_before_a_model_is_asked(given: str, at_fault: str, here: Path):
    (here / "long.json").write_text('{"enum": ["' + "x" * 100_000 + '"]}')
    assert at_fault in refused("ask", "?", *MODEL, "--schema", given, code=2)


def test_a_schema_may_be_as_large_as_is_said(model: Callable[..., Script]):
    most = json.dumps({"enum": [1], "title": ""})
    model("1", "1")
    ran("ask", "?", *MODEL, "--schema", most[:-2] + "x" * (100_000 - len(most)) + most[-2:])
    assert ran("ask", "?", *MODEL, "--schema", json.dumps({"enum": [1] * 4_998})).stdout == "1\n"
    assert "5000" in refused("ask", "?", *MODEL, "--schema", json.dumps({"enum": [1] * 4_999}), code=2)


@pytest.mark.parametrize("words", [("--output", "int", "--schema", "a"), ("--output", "int", "--extract")])
def test_what_does_not_go_together_is_named(words: tuple[str, ...]):
    assert words[2] in refused("ask", "?", *MODEL, *words, code=2)
