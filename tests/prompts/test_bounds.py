"""Does any text give a value or a `ParseError` in bounded time, with every parser?"""

from __future__ import annotations

import enum
import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from support.time_growth import growth

from fsm_agent import ParseError
from fsm_agent.prompts import (
    Output,
    TagParser,
    code,
    extract_json,
    first_of,
    json_anywhere,
    json_block,
    keyword,
    tagged,
    verbatim,
)


class Verdict(enum.Enum):
    APPROVED = "Approved"
    REJECTED = "Rejected"


class Step(BaseModel):
    name: str


class Review(BaseModel):
    title: str
    steps: list[Step] = []


class Node(BaseModel):
    name: str
    children: list[Node] = []


OUTPUTS = {
    **{"text": str, "a model": Review, "a list": list[Step], "a recursive model": Node, "an enum": Verdict},
    **{"a literal": Literal["yes", "no"], "a union": Review | list[Step] | int, "anything": Any, "a number": int},
    "a dictionary": dict[str, Any],
}
PARSERS: dict[str, Callable[[str], Any]] = {
    **{name: Output(kind).parse for name, kind in OUTPUTS.items()},
    **{"tagged": tagged("a"), "json_block": json_block, "json_anywhere": json_anywhere, "verbatim": verbatim},
    **{"code": code(), "code of a language": code("python"), "keyword": keyword("yes", "no")},
    "all": first_of(tagged("a"), json_block, json_anywhere, code("python"), verbatim, expect=Review),
    "all, strictly": first_of(tagged("a"), json_block, json_anywhere, expect=Review, repairs=()),
    "words": first_of(tagged("a"), code(), json_anywhere, keyword("yes"), expect=Verdict),
    "without a type": first_of(tagged("a"), json_anywhere),
    "tags": TagParser(xml=["a", "b"], md=["python", "json"], signals=["done"], required=["a"]),
    "extract_json": lambda text: extract_json(text, Review),
    "extract_json of any type": extract_json,
}
CHARACTERS = ["{", "[", "<", "(", '"', "\\", "`", "\n"]
PAIRS = ["".join(pair) for pair in itertools.permutations(CHARACTERS, 2)]
MIXES = [
    "".join(CHARACTERS),
    "".join(reversed(CHARACTERS)),
    '{"a":',
    '["a",',
    "<a>",
    "</a>",
    "```json\n",
    "~~~\n",
    "[{<",
]
UNITS = [*CHARACTERS, *PAIRS, *MIXES]
GROUPS = {character: [unit for unit in UNITS if unit[0] == character] for character in [*CHARACTERS, "~"]}


def filled(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


def attempted(parser: Callable[[str], Any], text: str) -> None:
    with suppress(ParseError):
        parser(text)


def test_junk_gives_a_value_or_a_parse_error():
    for parser in PARSERS.values():
        for unit in (*CHARACTERS, *MIXES):
            attempted(parser, filled(unit, 200))


@pytest.mark.nightly
@pytest.mark.parametrize("name", PARSERS)
def test_the_time_grows_with_the_text(name):
    parser = PARSERS[name]

    def given(size: int) -> list[str]:
        return [filled(unit, size) for unit in (*CHARACTERS, *MIXES)]

    def read(texts: list[str]) -> None:
        for text in texts:
            attempted(parser, text)

    assert growth(given, read, 600) < 3


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("character", GROUPS)
def test_a_megabyte_takes_at_most_two_seconds(character):
    for turn, unit in enumerate(GROUPS[character]):
        text = filled(unit, 1_000_000)
        parsers = [*PARSERS.items()]
        for name, parser in parsers[turn % 3 :: 3] if unit in PAIRS else parsers:  # each pair for a third, in turns
            took_s = []
            for _ in range(3):  # the machine may be busy
                start = time.thread_time()
                attempted(parser, text)
                took_s.append(time.thread_time() - start)
                if took_s[-1] < 2:
                    break
            assert min(took_s) < 2, (name, unit)
