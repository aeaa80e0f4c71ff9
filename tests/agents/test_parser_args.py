"""Do `parser_args` reach parsers and validators in every way to make a call, and does a replay decide alike?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, ValidationInfo, field_validator

from fsm_agent import Agent, FunctionCall, ParseError, Prompt, UsageError, function
from fsm_agent.call import AgentCall, restore, snapshot
from fsm_agent.prompts import ParserInput, parser
from fsm_agent.store import MemoryStore
from fsm_agent.testing import Script, function_call


class Pick(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def is_small(cls, n: int, info: ValidationInfo) -> int:
        if n > (info.context or {}).get("most", 10):
            raise ValueError(f"try again, because {n} is too much")
        return n


def halved(text: str, least: int = 0) -> int:
    if int(text) < least:
        raise ParseError(f"try again, because {text} is below {least}")
    return int(text) // 2


@parser
def given_args(given: ParserInput) -> dict[str, Any]:
    return dict(given.parser_args)


MOST = {"most": 5}


def called(agent: Agent[Any, Any], way: str, prompt: Prompt[Any], **options: Any) -> Any:
    return agent.call(prompt, **options) if way == "call" else asyncio.run(agent.acall(prompt, **options))


@pytest.mark.parametrize("way", ["call", "acall"])
def test_validators_of_a_type_get_them_as_context_in_each_way(way):
    model = Script('{"n": 7}', '{"n": 5}')
    result = called(Agent(model), way, Prompt("?", output=Pick), parser_args=MOST)
    assert result.output == Pick(n=5)
    assert "try again, because 7 is too much" in model.requests[1].messages[-1].text
    assert called(Agent(Script('{"n": 7}')), way, Prompt("?", output=Pick)).output == Pick(n=7), "none is the default"


def test_they_reach_the_agents_own_output_and_both_kinds_of_parsers():
    assert Agent(Script('{"n": 7}', '{"n": 5}'), output=Pick).call("?", parser_args=MOST).record.parse_errors == 1
    result = Agent(Script("3", "8")).call(Prompt("?", parser=halved), parser_args={"least": 5})
    assert (result.output, result.record.parse_errors) == (4, 1)
    args = {"a": [1, {"b": None}]}
    assert Agent(Script("x")).call(Prompt("?", parser=given_args), parser_args=args).output == args
    assert Agent(Script("x")).call(Prompt("?", parser=given_args)).output == {}


def test_they_do_not_go_to_a_plain_function_that_a_handler_brings():
    prompt = Prompt("?", parser=halved, on_exception=Prompt("{{ error_message }}", parser=float))
    assert Agent(Script("3", "8")).call(prompt, parser_args={"least": 5}).output == 8.0
    prompt = Prompt("?", parser=halved, on_exception=Prompt("{{ error_message }}", parser=given_args))
    assert Agent(Script("3", "8")).call(prompt, parser_args={"least": 5}).output == {"least": 5}


def test_what_json_cannot_hold_is_named():
    agent, prompt, parser_args = Agent(Script("5")), Prompt("?", output=Pick), {"at": [1, {2}]}
    for refuse in (
        lambda: agent.prepare(prompt, parser_args=parser_args),
        lambda: agent.restore(snapshot(agent.prepare(prompt)), prompt, parser_args=parser_args),
        lambda: AgentCall.seed(agent.init_dialog().put("?"), prompt, parser_args=parser_args),
    ):
        with pytest.raises(UsageError, match=r"parser_args\['at'\]\[1\]"):
            refuse()


def test_a_prompt_that_has_no_use_for_them_is_refused():
    with pytest.raises(UsageError, match="parser_args"):
        Agent(Script()).prepare("?", parser_args=MOST)


class TestReplay:
    PROMPT = Prompt("?", path="pick", output=Pick)

    def test_a_snapshot_has_them(self):
        call = Agent(Script('{"n": 7}', '{"n": 5}')).call(self.PROMPT, parser_args=MOST).call
        assert restore(snapshot(call), self.PROMPT).record.parser_args == MOST
        begun = Agent(Script()).prepare(self.PROMPT, parser_args=MOST)
        agent = Agent(Script('{"n": 7}', '{"n": 5}'))
        assert agent.run(agent.restore(snapshot(begun), self.PROMPT)).output == Pick(n=5)
        other = agent.restore(snapshot(begun), self.PROMPT, parser_args={"most": 1})
        assert Agent(Script('{"n": 5}', '{"n": 1}')).run(other).output == Pick(n=1)

    def test_a_run_that_is_resumed_decides_alike(self):
        def look() -> str:
            """Look."""
            return "a"

        store = MemoryStore()
        first = Agent(
            Script('{"n": 7}', function_call("look")),
            functions=[look],
            store=store,
            approve=lambda call: None,
            name="one",
        )
        call = first.prepare(self.PROMPT, parser_args=MOST, run_id="r")
        for _ in first.stream(call):
            pass
        assert [step.trigger for step in call.record.trace][1:] == ["parse_failed", "functions_asked"]
        again = Agent(
            Script('{"n": 6}', '{"n": 4}'), functions=[look], store=store, approve=lambda call: True, name="one"
        )
        result = again.runs.resume("r", prompt=self.PROMPT)
        assert (result.output, result.record.parse_errors) == (Pick(n=4), 2)
        assert result.record.parser_args == MOST


# All that the functions returned


@function
def price(item: str) -> int:
    """Look a price up."""
    if item == "moon":
        raise LookupError("not for sale")
    return len(item)


@parser
def receipt(given: ParserInput) -> dict[str, object]:
    """Return the text, and what each function said."""
    return {"text": given.text, "said": told(given.function_calls)}


def told(calls: Sequence[FunctionCall]) -> list[tuple[object, str | None]]:
    return [(f.arguments["item"], f.result or f.error) for f in calls]


TASK = Prompt("What does it cost?", functions=[price], parser=receipt)
EXPECTED = {"text": "Done.", "said": [("tea", "3"), ("moon", "LookupError: not for sale"), ("bread", "5")]}


def costs() -> Script:
    return Script(
        [function_call("price", item="tea"), function_call("price", item="moon")],
        function_call("price", item="bread"),
        "Done.",
    )


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_parser_makes_the_output_of_all_function_calls(asynchronous: bool):
    agent = Agent(costs())
    result = asyncio.run(agent.acall(TASK)) if asynchronous else agent.call(TASK)
    assert result.output == EXPECTED


def test_a_restored_call_makes_the_same_output():
    agent = Agent(costs())
    document = snapshot(agent.call(TASK).call)
    assert agent.restore(document, TASK).result().output == EXPECTED
