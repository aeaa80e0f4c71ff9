"""Does every hook receive its events, in order, and no others?"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from support.agent_drivers import Way, both, by_arun, by_astream, by_run, by_stream

from fsm_agent import Agent, Limits, function
from fsm_agent.call import CallFailed, State
from fsm_agent.errors import UsageError
from fsm_agent.messages import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    ReplyCompleted,
    RequestStarted,
    Stepped,
    TextDelta,
)
from fsm_agent.testing import Script, function_call


class Notes:
    """Notes the events that it receives."""

    def __init__(self, name: str, log: list[tuple[str, Any]]) -> None:
        self.name = name
        self.log = log

    def on_event(self, event: Event) -> None:
        self.log.append((self.name, event))


@function
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


everyway = pytest.mark.parametrize("way", [by_run, by_arun, by_stream, by_astream], ids=lambda way: way.__name__)


def driven(way: Way, agent: Agent) -> list[Event]:
    """Return the events of a call that is driven in this way."""
    heard: list[Event] = []
    way(agent, agent.prepare("17 + 25?"), heard)
    return heard


def script() -> Script:
    return Script(["Let me see.", function_call("add", a=17, b=25)], "It is 42.")


@everyway
def test_the_golden_order_of_all_events(way: Way):
    log: list[tuple[str, Any]] = []
    driven(way, Agent(script(), functions=[add], hooks=[Notes("a", log)]))
    told = [f"{e.source} {e.trigger}" if isinstance(e, Stepped) else type(e).__name__ for _, e in log]
    assert told == [
        "Seeded begun",
        "RequestStarted",
        *["TextDelta"] * 3,
        "FunctionCallStarted",
        "ArgumentsDelta",
        "FunctionCallCompleted",
        "ReplyCompleted",
        "HistoryChanged",
        "Calling functions_asked",
        "FunctionStarted",
        "FunctionEnded",
        "HistoryChanged",
        "ToolInterrupt returned",
        "RequestStarted",
        *["TextDelta"] * 3,
        "ReplyCompleted",
        "HistoryChanged",
        "Calling answered",
        "Done",
    ]


@both
def test_each_hook_is_told_each_event_in_the_order_of_the_hooks(way: Way):
    log: list[tuple[str, Any]] = []
    events = driven(way, Agent(script(), functions=[add], hooks=[Notes("a", log), Notes("b", log)]))
    assert [name for name, _ in log] == ["a", "b"] * (len(log) // 2)
    assert [e for name, e in log if name == "a"] == [e for name, e in log if name == "b"]
    assert events == [e for name, e in log if name == "a"]


@both
def test_a_method_is_told_of_its_own_kind_before_on_event(way: Way):
    log: list[Any] = []

    class Hook:
        def on_function_started(self, event: FunctionStarted) -> None:
            log.append(("started", event.name, event.arguments_json))

        def on_function_ended(self, event: FunctionEnded) -> None:
            log.append(("ended", event.text, event.is_error))

        def on_done(self, event: Done) -> None:
            log.append(("done", event.result.output))

        def on_event(self, event: Event) -> None:
            log.append(type(event).__name__)

    driven(way, Agent(script(), functions=[add], hooks=[Hook()]))
    assert [told for told in log if isinstance(told, tuple)] == [
        ("started", "add", '{"a": 17, "b": 25}'),
        ("ended", "42", False),
        ("done", "It is 42."),
    ]
    for i, told in enumerate(log):
        if isinstance(told, tuple):
            assert log[i + 1].lower().endswith(told[0])
    assert sum(told == "Done" for told in log) == 1


@both
def test_a_call_that_failed_is_done_once_too(way: Way):
    log: list[tuple[str, Any]] = []
    agent = Agent(
        Script(function_call("add", a=1, b=1)), functions=[add], hooks=[Notes("a", log)], limits=Limits(rounds=0)
    )
    with pytest.raises(CallFailed):
        driven(way, agent)
    assert [isinstance(e, Done) for _, e in log] == [False] * (len(log) - 1) + [True]
    assert log[-1][1].result.state is State.FAILED


@pytest.mark.parametrize(
    ("way", "at"),
    [
        (by_run, Stepped),
        (by_run, ReplyCompleted),
        (by_run, FunctionStarted),
        (by_stream, TextDelta),
        (by_arun, FunctionEnded),
        (by_astream, Done),
    ],
)
def test_a_hook_that_raises_ends_the_driver_and_the_call_can_be_driven_on(way: Way, at: type):
    class Broken:
        is_broken = True

        def on_event(self, event: Event) -> None:
            if isinstance(event, at) and self.is_broken:
                raise LookupError("the log is full")

    def model(request: Any) -> Any:
        return function_call("add", a=17, b=25) if len(request.messages) == 1 else "It is 42."

    broken, ran = Broken(), []

    @function
    def add(a: int, b: int) -> int:
        """Add."""
        ran.append(a)
        return a + b

    agent = Agent(Script(model, model, model), functions=[add], hooks=[broken])
    one = agent.prepare("17 + 25?")
    with pytest.raises(LookupError, match="the log is full"):
        way(agent, one, [])
    broken.is_broken = False
    assert agent.run(one).output == "It is 42."
    assert ran == [17], "nothing is done twice"


def test_a_sink_is_told_behind_the_hooks():
    log: list[tuple[str, Any]] = []
    agent = Agent(Script("hi"), hooks=[Notes("hook", log)])
    agent.run(agent.prepare("?"), lambda event: log.append(("sink", event)))
    assert [name for name, _ in log] == ["hook", "sink"] * (len(log) // 2)


def test_a_hook_may_have_a_method_for_every_event_and_no_other():
    def hook(*names: str) -> Any:
        return type("Hook", (), {name: lambda self, event: None for name in names})()

    names = [re.sub("([A-Z])", r"_\1", event.__name__).lower() for event in get_args(Event)]
    Agent(Script(), hooks=[hook(*[f"on{name}" for name in names])])
    with pytest.raises(UsageError, match=r"on_functon_ended.*on_function_ended"):
        Agent(Script(), hooks=[hook("on_functon_ended")])
    for useless in (hook("ended"), print):
        with pytest.raises(UsageError, match="hook"):
            Agent(Script(), hooks=[useless])


@dataclass  # with equality, and so without a hash
class Listed:
    """A callable that lists what it receives."""

    got: list[Any] = field(default_factory=list)

    def __call__(self, event: Event, record: Any) -> None:
        self.got.append((type(event), record.state))


@pytest.mark.parametrize("wrap", [lambda call: call, partial, lambda call: call.__call__])
def test_a_method_may_be_any_callable_that_the_hook_holds(wrap: Any):
    listed = Listed()
    Agent(Script("hi"), hooks=[SimpleNamespace(on_done=wrap(listed))]).call("?")
    assert listed.got == [(Done, State.COMPLETED)]


@both
def test_the_messages_of_each_request_are_seen_before_it_is_sent(way: Way):
    seen: list[list[str]] = []
    model = Script(function_call("add", a=1, b=2), function_call("add", a=2, b=1), "no number", "3")

    class Prompts:
        def on_request_started(self, event: RequestStarted) -> None:
            assert len(model.requests) == len(seen), "those before were sent, and this one was not"
            seen.append([message.text for message in event.shown])

    def last(messages: Any) -> Any:
        return [*messages[:2], *messages[-2:]] if messages[-1].role == "tool" else messages

    driven(way, Agent(model, system="Add.", functions=[add], output=int, context=[last], hooks=[Prompts()]))
    assert seen == [[message.text for message in request.messages] for request in model.requests]
    assert [len(texts) for texts in seen] == [2, 4, 4, 6], "as the pass leaves them, and with the exception branch"
