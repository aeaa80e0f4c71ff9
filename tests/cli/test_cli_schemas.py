"""Does ``--schema`` take a file with a JSON Schema, and refuse what is none?"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import MODEL, ran, refused

from fsm_agent.testing import Script

OLD = {"type": "object", "properties": {"of": {"$ref": "#/$defs/Age"}}, "required": ["of"]}
AGE = {"$defs": {"Age": {"type": "integer", "minimum": 1}}}


def asked(here: Path, schema: str) -> list[str]:
    (here / "a.json").write_text(schema)
    return ["ask", "?", *MODEL, "--schema", "a.json"]


def test_an_answer_is_held_to_it(model: Callable[..., Script], here: Path):
    script = model('{"of": 0}', '{"of": 7}')
    ended = ran(*asked(here, json.dumps(OLD | AGE)))
    assert json.loads(ended.stdout) == {"of": 7}
    assert len(script.requests) == 2


def layers(depth: int, width: int) -> str:
    """A schema with references of so many to so many, on so many floors."""
    floors = {f"L{n}": {"type": "array", "items": [{"$ref": f"#/$defs/L{n + 1}"}] * width} for n in range(depth)}
    return json.dumps({"$ref": "#/$defs/L0", "$defs": {**floors, f"L{depth}": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("schema", "at_fault"),
    [
        ("{", "JSON"),
        ("", "JSON"),
        ("[]", "object"),
        ('{"$ref": "#/$defs/X", "$defs": {"X": {"$ref": "#/$defs/X"}}}', "'#/$defs/X'"),
        ('{"$ref": "#/$defs/Y"}', "'#/$defs/Y'"),
        ('{"$ref": "https://example.org/y"}', "'https://example.org/y'"),
        (layers(30, 9), "5000"),
        ('{"enum": ["' + "x" * 100_000 + '"]}', "100000"),
    ],
)
def test_what_is_no_schema_is_refused_before_a_model_is_asked(schema: str, at_fault: str, here: Path):
    assert at_fault in refused(*asked(here, schema), code=2)


@pytest.mark.parametrize("file", ["none.json", ".", "name, age int", "a\0b"])
def test_what_is_no_file_is_refused(file: str):
    assert "schema" in refused("ask", "?", *MODEL, "--schema", file, code=2)


def test_a_schema_may_be_as_large_as_is_said(model: Callable[..., Script], here: Path):
    most = json.dumps({"enum": [1], "title": ""})
    model("1", "1")
    ran(*asked(here, most[:-2] + "x" * (100_000 - len(most)) + most[-2:]))
    assert ran(*asked(here, json.dumps({"enum": [1] * 4_998}))).stdout == "1\n"
    assert "5000" in refused(*asked(here, json.dumps({"enum": [1] * 4_999})), code=2)


@pytest.mark.parametrize("words", [("--output", "int", "--schema", "a"), ("--output", "int", "--extract")])
def test_what_does_not_go_together_is_named(words: tuple[str, ...]):
    assert words[2] in refused("ask", "?", *MODEL, *words, code=2)
