"""Do listeners get the output while it arrives, alike under every driver, at no cost to other calls?"""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator
from support.drivers import Driver, by_arun_unheard, by_run_unheard, everywhere, seed

from fsm_agent import Agent, Prompt
from fsm_agent.errors import Overloaded
from fsm_agent.messages import Done, PartialOutput, ReplyCompleted, RequestStarted, TextDelta
from fsm_agent.prompts import first_of, tagged
from fsm_agent.testing import Pieces, Script, function_call

CHECKED: list[int] = []


class Count(BaseModel):
    thing: str
    n: int

    @field_validator("n")
    @classmethod
    def is_small(cls, n: int, info: ValidationInfo) -> int:
        CHECKED.append(n)
        if n > (info.context or {}).get("most", 10):
            raise ValueError("too many")
        return n


@pytest.fixture(autouse=True)
def _forget():
    CHECKED.clear()


def partial(events: list[Any]) -> list[tuple[int, Any]]:
    return [(event.number, event.data) for event in events if isinstance(event, PartialOutput)]


@everywhere
def test_every_listener_hears_the_same(driven: Driver):
    script = Script(Pieces('{"thing": "la', 'mp", "n": 1', '2, "x": 1}'), Pieces('{"thing": "bag", "n": ', "5}"))
    events = driven(seed(Prompt("?", output=Count)), script)
    assert partial(events) == [
        (1, {"thing": "la"}),
        (1, {"thing": "lamp"}),
        (2, {"thing": "bag"}),
        (2, {"thing": "bag", "n": 5}),
    ], "12 is refused, and the next answer begins anew"
    assert [event.number for event in events if isinstance(event, RequestStarted)] == [1, 2]
    kinds = [type(event) for event in events]
    first = kinds.index(PartialOutput)
    assert kinds[first - 1 : first + 2] == [TextDelta, PartialOutput, TextDelta], "behind its delta"
    assert kinds.index(ReplyCompleted) > first


@everywhere
def test_a_request_that_is_repeated_begins_anew(driven: Driver):
    script = Script(Overloaded("busy"), Pieces('{"thing": "a"', ', "n": 1}'))
    assert partial(driven(seed(Prompt("?", output=Count)), script)) == [
        (2, {"thing": "a"}),
        (2, {"thing": "a", "n": 1}),
    ]


@pytest.mark.parametrize("driven", [by_run_unheard, by_arun_unheard])
def test_nobody_else_pays(driven: Driver):
    driven(seed(Prompt("?", output=Count)), Script(Pieces('{"n": 5, ', '"thing": "bag', '"}')))
    assert CHECKED == [5], "validated once, at the end"


def test_validators_have_the_arguments_of_the_call():
    agent = Agent(Script(Pieces('{"n": 7, ', '"thing": "bag', '"}')), output=Count)
    assert partial([*agent.stream("?", parser_args={"most": 7})])[0] == (1, {"n": 7})
    agent = Agent(Script(Pieces('{"n": 7, ', '"thing": "bag', '"}'), '{"n": 6, "thing": ""}'), output=Count)
    assert partial([*agent.stream("?", parser_args={"most": 6})])[0] == (2, {"n": 6})


@pytest.mark.parametrize(
    "prompt",
    [
        Prompt("?"),
        Prompt("?", parser=len),
        Prompt("?", output=Count, parser=len),
        Prompt("?", parser=first_of(tagged("a"))),
    ],
)
def test_texts_and_parsers_of_texts_have_none(prompt):
    events = [*Agent(Script(Pieces("<a>", '{"n": 1}', "</a>"))).stream(prompt)]
    assert partial(events) == []
    assert isinstance(events[-1], Done)


def test_the_prompt_that_governs_the_answer_is_followed():
    handler = Prompt("{{ error_message }}", output=list[int])
    prompt = Prompt("?", output=Count, on_exception=handler)
    events = [*Agent(Script(Pieces('{"thing": "x"', "}"), Pieces("[1, ", "2]"))).stream(prompt)]
    assert partial(events) == [(1, {"thing": "x"}), (2, [1]), (2, [1, 2])]
    tagged_answer = Prompt("?", parser=first_of(tagged("answer"), expect=Count))
    pieces = Pieces('{"n": 1} <answer>{"n', '": 2, "thing": ', '"x"}</answer>')
    assert partial([*Agent(Script(pieces)).stream(tagged_answer)]) == [(1, {"n": 2}), (1, {"n": 2, "thing": "x"})]


def test_two_stages_have_it_in_the_second_alone():
    def look() -> str:
        """Look."""
        return "5 bags"

    prompt = Prompt("?", functions=[look], output=Count, mode="two_stage")
    script = Script(function_call("look"), '{"n": 4, "thing": "draft"}', '{"n": 5, "thing": "bag"}')
    events = [*Agent(script).stream(prompt)]
    assert {number for number, _ in partial(events)} == {3}


def test_who_listens_changes_nothing():
    results = []
    for stream in (False, True):
        agent = Agent(
            Script(Pieces('So {"n": 50, "thing": "x"}'), Pieces('{"n": 5, "th', 'ing": "bag"}')), output=Count
        )
        one = agent.prepare("?")
        if stream:
            assert partial([*agent.stream(one)])
        else:
            agent.run(one)
        results.append(one.record.changed(id="", started_at_s=0.0))
    assert results[0] == results[1]


def test_an_answer_that_comes_as_the_arguments_of_a_function_is_followed():
    prompt = Prompt("How many?", output=Count, mode="function")
    other, answer = function_call("count", n=1), function_call("give_final_answer", thing="lamp", n=2)
    agent = Agent(Script(other, answer))
    assert partial([*agent.stream(prompt)])[-1:] == [(2, {"thing": "lamp", "n": 2})]
    assert {number for number, _ in partial([*Agent(Script(other, answer)).stream(prompt)])} == {2}
