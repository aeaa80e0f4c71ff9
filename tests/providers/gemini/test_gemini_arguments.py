"""Do the pieces of streamed arguments come together?"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.time_growth import growth

from fsm_agent.providers.gemini.arguments import StreamedArguments


def piece(path: Any, text: str | None = None, *, more: bool = False, **value: Any) -> dict[str, Any]:
    said = {"jsonPath": path, **value}
    return {**said, **({} if text is None else {"stringValue": text}), **({"willContinue": True} if more else {})}


def joined(*pieces: dict[str, Any]) -> Any:
    arguments = StreamedArguments()
    assert all(arguments.put(said) for said in pieces)
    return json.loads(arguments.json())


PIECES: dict[str, tuple[list[dict[str, Any]], Any]] = {
    "nothing": ([], {}),
    "a string in pieces": (
        [piece("$.a", "Bos", more=True), piece("$.a", "ton", more=True), piece("$.a", "")],
        {"a": "Boston"},
    ),
    "a string that is said again": ([piece("$.a", "Rome"), piece("$.a", "Paris")], {"a": "Paris"}),
    "two strings in turns": (
        [piece("$.a", "x", more=True), piece("$.b", "1", more=True), piece("$.a", "y"), piece("$.b", "2")],
        {"a": "xy", "b": "12"},
    ),
    "numbers and the like": (
        [
            piece("$.i", numberValue=5),
            piece("$.f", numberValue=0.5),
            piece("$.b", boolValue=False),
            piece("$.n", nullValue="NULL_VALUE"),
        ],
        {"i": 5, "f": 0.5, "b": False, "n": None},
    ),
    "objects and arrays": (
        [
            piece("$.a.b[0].c", "x", more=True),
            piece("$.a.b[0].c", "y"),
            piece("$.a.b[1]", numberValue=2),
            piece("$.a.d", boolValue=True),
        ],
        {"a": {"b": [{"c": "xy"}, 2], "d": True}},
    ),
    "arrays in arrays": (
        [piece("$.a[0][0]", "x"), piece("$.a[0][1]", "y"), piece("$.a[1][0]", "z")],
        {"a": [["x", "y"], ["z"]]},
    ),
    "quoted names": (
        [piece("$['a b']", "x"), piece('$["c.d"][0]', "y"), piece(r"$['it\'s']", "z"), piece("$['']", "")],
        {"a b": "x", "c.d": ["y"], "it's": "z", "": ""},
    ),
    "a name that is a number": ([piece("$.1", "x")], {"1": "x"}),
    "names of any language": ([piece("$.größe", "x")], {"größe": "x"}),
}


@pytest.mark.parametrize("name", PIECES)
def test_pieces_come_together(name: str) -> None:
    pieces, arguments = PIECES[name]
    assert joined(*pieces) == arguments


def test_arguments_that_come_at_once() -> None:
    arguments = StreamedArguments()
    arguments.value = {"a": {"b": [1]}}
    assert arguments.put(piece("$.a.b[1]", "x"))
    assert arguments.json() == '{"a":{"b":[1,"x"]}}'


@pytest.mark.parametrize(
    "path",
    [
        *(None, 7, "", "$", "a", "$a", "$.", "$..a", "$.a[", "$.a[x]", "$.a[-1]", "$.*", "$[0]", "$.a[5]", "$.s.t"),
        "$.s[0]",
    ],
)
def test_path_that_leads_nowhere_is_no_place(path: Any) -> None:
    arguments = StreamedArguments()
    arguments.put(piece("$.s", "text"))
    assert not arguments.put(piece(path, "x"))


def test_place_is_not_where_something_else_stands() -> None:
    arguments = StreamedArguments()
    arguments.value = {"list": [1], "object": {}}
    assert not arguments.put(piece("$.list.a", "x"))
    assert not arguments.put(piece("$.object[0]", "x"))
    arguments.value = "text"
    assert not arguments.put(piece("$.a", "x"))


def test_depth_and_gaps_are_bounded() -> None:
    assert joined(piece("$" + ".a" * 64, "x"))
    assert not StreamedArguments().put(piece("$" + ".a" * 65, "x"))
    assert not StreamedArguments().put(piece("$.a[9999999]", "x"))
    assert not StreamedArguments().put(piece("$.a[99999999999]", "x"))


@pytest.mark.system
def test_long_strings_take_linear_time() -> None:
    def read(text: str) -> None:
        arguments = StreamedArguments()
        for character in text:
            arguments.put(piece("$.a", character, more=True))
        assert len(arguments.json()) == len(text) + 8

    assert growth(lambda size: "x" * size, read, 500) < 3


STEPS = st.sampled_from([".a", ".b", "[0]", "[1]", "['c']", '["d"]', "x", "["])


@given(
    st.lists(
        st.fixed_dictionaries(
            {"jsonPath": st.lists(STEPS, max_size=4).map(lambda steps: "$" + "".join(steps)) | st.none()},
            optional={
                "stringValue": st.text(max_size=3) | st.none(),
                "numberValue": st.integers() | st.text(max_size=2),
                "boolValue": st.booleans(),
                "willContinue": st.booleans() | st.none(),
            },
        ),
        max_size=8,
    )
)
def test_any_pieces_are_json(pieces: list[dict[str, Any]]) -> None:
    arguments = StreamedArguments()
    for said in pieces:
        arguments.put(said)
    assert isinstance(json.loads(arguments.json()), dict)
