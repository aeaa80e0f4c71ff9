"""Can a program tell an answer from one that the model was made to give, since its rounds were used up?"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from support.agent_drivers import Way, both, by_run

from fsm_agent import Agent, Approved, CallFailed, CallSuspended, Limits, function, handoff
from fsm_agent.call import Reason, snapshot
from fsm_agent.errors import AuthFailed, Overloaded
from fsm_agent.messages import Event, Inside, Reply, Stepped, Usage
from fsm_agent.testing import Script, function_call

GUARD = "at_round_limit"


@function
def look(where: str) -> str:
    """Look somewhere."""
    return "nothing"


@function(needs_approval=True)
def dig(where: str) -> str:
    """Dig somewhere."""
    return "nothing"


def looking(*replies: Any, rounds: int = 1, **options: Any) -> Agent[Any, Any]:
    replies = replies or (function_call("look", where="shed"), "Not in the shed.")
    return Agent(Script(*replies), functions=[look, dig], limits=Limits(rounds=rounds), **{"name": "finder", **options})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]


def is_final(text: str) -> bool:
    """Return whether a request says that the rounds are used up."""
    return "final answer" in text


def told(script: Any) -> list[int]:
    """How often each request says that the rounds are used up."""
    return [sum(is_final(m.text) for m in request.messages) for request in script.requests]


@both
def test_it_is_in_the_ending_the_trace_and_the_log_whoever_drives_and_listens(
    way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="fsm_agent")
    agent = looking()
    one = agent.prepare("Find the key.")
    way(agent, one, [])
    result = one.result()
    assert (result.output, result.ending.reason) == ("Not in the shed.", Reason.ANSWERED)
    assert (result.ending.limit, result.ending.count) == ("rounds", 1)
    (step,) = [step for step in result.trace if step.guard == "at_round_limit"]
    assert (step.trigger, step.to) == ("returned", "Calling")
    assert "limits.rounds=1" in step.detail
    (line,) = warnings(caplog)
    assert GUARD in line
    assert "limits.rounds=1" in line
    assert "limits.rounds=1" in result.transcript().splitlines()[-1]
    assert told(agent.model) == [0, 1]


def test_an_answer_within_the_rounds_is_marked_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fsm_agent")
    for agent in (looking(rounds=2), Agent(Script("Gone."), limits=Limits(rounds=0)), looking("Gone.", rounds=0)):
        result = agent.call("Find the key.")
        assert (result.ending.limit, result.ending.count, "(" in result.transcript()) == ("", None, False)
    assert warnings(caplog) == []


def test_a_turn_inherits_no_word_of_it(tmp_path: Path) -> None:
    agent = looking(
        function_call("look", where="shed"), "No.", function_call("look", where="attic"), "No, either.", "Sorry."
    )
    first = agent.call("Find the key.")
    second = agent.call("Look again.", after=first)
    assert (second.output, second.ending.limit, told(agent.model)) == ("No, either.", "rounds", [0, 1, 0, 1])
    assert not any(is_final(message.text) for message in second.dialog)
    third = agent.call("Well?", after=second)
    assert (third.ending.limit, third.record.rounds, told(agent.model)[-1]) == ("", 0, 0)

    kept = looking(function_call("look", where="shed"), "No.", "Sorry.", store=tmp_path / "runs.db")
    kept.conversation("ann").call("Find the key.")
    assert kept.conversation("ann").call("Look again.").ending.limit == ""
    assert told(kept.model) == [0, 1, 0]


def test_the_agent_that_took_over_says_so_for_the_call() -> None:
    agent = Agent(Script(function_call("transfer_to_finder")), name="desk", functions=[handoff(looking())])
    result = agent.call("Find the key.")
    assert (result.output, result.ending.limit, result.ending.count) == ("Not in the shed.", "rounds", 1)
    assert not any(is_final(message.text) for message in result.dialog)


def test_an_agent_inside_says_so_in_the_events_and_the_log(caplog: pytest.LogCaptureFixture) -> None:
    outer = Agent(Script(function_call("finder", task="the key"), "It is gone."), functions=[looking()])
    events: list[Event] = []
    one = outer.prepare("Find the key.")
    by_run(outer, one, events)
    inner = [e.event for e in events if isinstance(e, Inside) and isinstance(e.event, Stepped)]
    assert len([step for step in inner if step.guard == GUARD]) == 1
    (line,) = warnings(caplog)
    assert "run:1.0" in line
    assert GUARD in line
    assert one.result().ending.limit == "", "the call around it has rounds left"


def test_a_run_that_waited_in_its_last_round_says_so_and_so_does_its_replay(tmp_path: Path) -> None:
    agent = looking(function_call("dig", where="garden"), "Not there.", store=tmp_path / "runs.db")
    with pytest.raises(CallSuspended) as suspended:
        agent.call("Find the key.", run_id="r1")
    again = agent.restore(snapshot(suspended.value.call))
    result = agent.runs.resume("r1", {"ask:1.0": Approved()})
    assert (result.ending.limit, result.ending.count, result.trace[-2].guard) == ("rounds", 1, "at_round_limit")
    assert agent.runs.replay("r1").record == result.record
    assert again.record == suspended.value.call.record


@pytest.mark.parametrize(
    ("replies", "limits", "reached"),
    [
        ([function_call("look", where="a")] * 2, {"rounds": 1}, ("rounds", 1)),
        ([function_call("look", where="a")], {"rounds": 1, "on_limit": "fail"}, ("rounds", 1)),
        ([function_call("look", where="a")] * 2, {"identical_rounds": 2, "on_loop": "stop"}, ("identical_rounds", 2)),
        (["x", "y"], {"parse_retries": 1}, ("parse_retries", 1)),
        ([Reply.of("1").changed(usage=Usage(input_tokens=2, output_tokens=1))], {"tokens": 2}, ("tokens", 3)),
        (["1"], {"deadline_s": 0}, ("deadline_s", 0)),
        ([Overloaded("busy", status=503)], {"recalls": 0}, ("recalls", 0)),
        ([AuthFailed("no", status=401)], {"recalls": 0}, ("", None)),
    ],
)
def test_every_failure_at_a_limit_names_it_and_what_was_counted(
    replies: list[Any], limits: dict[str, Any], reached: tuple[str, int]
) -> None:
    agent = Agent(Script(*replies), functions=[look], output=int, limits=Limits(**limits))
    with pytest.raises(CallFailed) as failed:
        agent.call("?")
    assert (failed.value.result.ending.limit, failed.value.result.ending.count) == reached
