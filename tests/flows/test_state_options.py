"""Does every word that declares a state take the options of all states, and no other?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent
from fsm_agent.flows import Flow, ask, each, end, execute, gather, race, subflow, wait
from fsm_agent.testing import Script


def text(n: int) -> str:
    return str(n)


def items(n: int) -> tuple[int, ...]:
    return (n,)


def same(n: int) -> int:
    return n


one, two = execute(name="one")(text), execute(name="two")(text)
inner = Flow("inner", int, start=one, rows=[one.done(end("over"))])
WORDS: dict[str, Callable[..., Any]] = {
    "ask": lambda **options: ask(Agent(Script("x")), str, **options)(text),
    "execute": lambda **options: execute(**options)(text),
    "wait": lambda **options: wait(str, **options)(text),
    "gather": lambda **options: gather("both", one, two, **options),
    "race": lambda **options: race("first", one, two, **options),
    "each": lambda **options: each("all_of_them", one, items, **options),
    "subflow": lambda **options: subflow("nested", inner, same, **options),
}
NAMED = ("ask", "execute", "wait")


@pytest.mark.parametrize("word", WORDS)
def test_the_time_of_a_state_is_an_option_of_every_word(word: str) -> None:
    assert (WORDS[word](within_s=3).within_s, WORDS[word]().within_s) == (3, None)


@pytest.mark.parametrize("word", NAMED)
def test_a_state_is_called_as_its_function_unless_it_has_a_name(word: str) -> None:
    assert (WORDS[word](name="other").name, WORDS[word]().name, WORDS[word](name=None).name) == (
        "other",
        "text",
        "text",
    )


@pytest.mark.parametrize("word", NAMED)
def test_an_option_that_there_is_not_is_named_with_the_one_that_is_meant(word: str) -> None:
    with pytest.raises(TypeError, match=rf"{word} .*'wihtin_s'"):
        WORDS[word](wihtin_s=3)


def test_each_tells_its_own_options_as_well() -> None:
    with pytest.raises(TypeError, match="'paralel'"):
        WORDS["each"](paralel=3)
