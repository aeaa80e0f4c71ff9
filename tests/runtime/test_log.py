"""Can a call be followed in the log, under every driver, and is every line fit to be written anywhere?"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from typing import Any

import pytest
from support.drivers import Driver, anyhow, by_arun, by_run, environment, seed
from support.nested_process import Solo, Team, TeamRecord

from fsm_agent import Agent
from fsm_agent.call import AgentCall, Approved, CallFailed, CallSuspended, Cancelled, Limits
from fsm_agent.errors import AuthFailed, ParseError, RateLimited, Retry
from fsm_agent.functions import Function
from fsm_agent.messages import Reply, Stepped, Usage
from fsm_agent.prompts import Prompt
from fsm_agent.runtime import LoggingHook
from fsm_agent.testing import Script, function_call

KEY = "sk-abcdefghijklmnopqrstuvwx"


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[tuple[str, str]]:
    return [(entry.levelname, entry.getMessage()) for entry in caplog.records if entry.levelno >= level]


def asking(function: Any, **policy: Any) -> AgentCall:
    return seed(Prompt("x", functions=[Function.of(function, name="look", **policy)]), limits=Limits(recalls=1))


@anyhow
def test_every_step_has_a_line(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    one, reply = asking(lambda: "seen"), Reply.of("fine").changed(usage=Usage(input_tokens=7))
    driven(one, Script(RateLimited("slow", status=429, retry_after_s=0.001), function_call("look"), reply))
    assert [level for level, _ in logged(caplog)] == ["DEBUG", "WARNING", *["DEBUG"] * 4]
    expected = [  # the call, where it was and is, the row, its guard, the key, and the facts
        ("call-1", "Seeded -> Calling", "begun", "(begin)"),
        ("call-1", "Calling -> Backoff", "model_failed", "may_recall", "(model:0)", "RateLimited", "429", "0.001 s"),
        ("call-1", "Backoff -> Calling", "slept", "(sleep:1)"),
        ("call-1", "Calling -> ToolInterrupt", "functions_asked", "(model:1)", "look"),
        ("call-1", "ToolInterrupt -> Calling", "returned", "(run:2.0)", "look"),
        ("call-1", "Calling -> Completed", "answered", "(model:2)", "7 + 0 tokens"),
    ]
    for (_, line), facts in zip(logged(caplog), expected, strict=True):
        assert [fact for fact in facts if fact not in line] == []


def test_only_failures_are_for_everybody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fsm_agent")
    by_arun(seed(Prompt("x")), Script("fine"))
    (cancelled := seed(Prompt("x"))).cancel("enough")
    by_arun(cancelled, Script("never"))
    assert logged(caplog) == []
    by_arun(seed(Prompt("x")), Script(AuthFailed("no", status=401)))
    ((level, line),) = logged(caplog)
    assert (level, "AuthFailed" in line, "401" in line) == ("WARNING", True, True)


def test_steps_of_processes_inside_have_their_paths(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    asked = {name: Solo(environment=environment(Script("draft"))) for name in ("warm", "terse")}
    by_arun(Team(TeamRecord(), asked), Script())
    lines = [line for _, line in logged(caplog)]
    assert "call call-1/warm: Calling -> Completed: answered (model:0)" in lines
    assert lines[-1].startswith("call call-1: Deciding -> Done: picked")


def broken() -> str:
    found: dict[str, str] = {}
    return found["key"]


@anyhow
@pytest.mark.parametrize("policy", [{}, {"on_error": "fail"}, {"timeout_s": 60}], ids=str)
def test_a_function_that_raises_is_logged_with_its_traceback(
    driven: Driver, policy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    one = asking(broken, **policy)
    driven(one, Script(function_call("look"), "fine"))
    entry = caplog.records[0]
    assert entry.levelname == "WARNING"
    assert [fact for fact in ("call-1", "'look'", "run:2.0", "KeyError") if fact not in entry.getMessage()] == []
    assert 'return found["key"]' in entry.exc_text
    assert "fsm_agent" not in entry.exc_text.split("in broken")[0].rpartition("File")[2].rpartition("/")[2]
    assert entry.exc_text in caplog.text, "formatters write it"
    (failed,) = one.record.function_calls
    assert failed.error == "KeyError: 'key'", "the model is told without it"


def test_each_attempt_is_logged_and_a_word_to_the_model_is_none(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[Exception] = [OSError("1"), OSError("2"), Retry("give another")]

    def flaky() -> str:
        raise errors.pop(0)

    by_arun(asking(flaky, on_error="retry"), Script(function_call("look"), "fine"))
    first, second = [line for _, line in logged(caplog, logging.INFO)]
    assert "OSError" in first
    assert "attempt 2" in second


@anyhow
def test_a_function_that_takes_too_long_is_logged(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    free = threading.Event()
    try:
        driven(asking(lambda: free.wait(60), timeout_s=0.01), Script(function_call("look"), "fine"))
    finally:
        free.set()
    ((level, line),) = logged(caplog)
    assert (level, "'look'" in line, "0.01 s" in line) == ("WARNING", True, True)


def halve(text: str) -> float:
    try:
        return int(text) / 0
    except ValueError as error:
        raise ParseError(f"{text!r} is no number") from error


def test_a_parser_that_fails_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """That it refuses an answer is for those who debug."""
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    one = seed(Prompt("x", path="p", parser=halve), limits=Limits(parse_retries=1))
    by_arun(one, Script("no number", "42"))
    refused, failed = [entry for entry in caplog.records if "parser" in entry.getMessage()]
    assert (refused.levelname, failed.levelname) == ("DEBUG", "WARNING")
    assert "'p'" in failed.getMessage()
    assert "ZeroDivisionError" in failed.getMessage()
    assert "in halve\n    return int(text) / 0" in caplog.text


class Oops(Exception):
    """Something that a weak reference can point to."""


@anyhow
def test_no_exception_is_kept_alive(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    kept: list[weakref.ref[Oops]] = []

    def look() -> str:
        error = Oops("no")
        kept.append(weakref.ref(error))
        try:
            raise error
        finally:
            del error  # otherwise it is in a cycle of its own

    gc.collect()
    gc.disable()
    try:
        driven(asking(look), Script(function_call("look"), "fine"))
        assert [ref() for ref in kept] == [None]
    finally:
        gc.enable()
    assert "Oops: no" in caplog.text


@pytest.mark.parametrize("answer", ["42", "no number"])
@anyhow
def test_a_call_whose_parser_failed_leaves_nothing_for_the_collector(
    driven: Driver, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")

    class Deps:
        pass

    def once() -> weakref.ref[Deps]:
        deps = Deps()
        one = seed(Prompt("x", parser=halve), limits=Limits(parse_retries=1), deps=deps)
        driven(one, Script("0", answer))
        with pytest.raises(CallFailed):
            one.result()
        return weakref.ref(deps)

    once()
    gc.collect()
    gc.disable()
    try:
        assert once()() is None
    finally:
        gc.enable()


def test_what_is_advanced_by_hand_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    one = seed(Prompt("x"))
    one.advance("", Cancelled())
    assert isinstance(one.step, Stepped)
    assert logged(caplog) == []


class TestWhatALineMayHold:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("a\nb\t c\r\n", "a b c"),
            ("half \ud800 a pair", "half a pair"),
            ("\x1b[31mred\x00", "[31mred"),
            (f"key {KEY}!", "key sk-a***!"),
            ("", ""),
        ],
    )
    def test_it_is_one_plain_line_without_keys(self, text: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
        by_run(seed(Prompt("x")), Script(AuthFailed(text, status=401)))
        ((_, line),) = logged(caplog)
        assert f"AuthFailed: {said}".rstrip(": ") in line
        assert line.isprintable()

    def test_it_is_short_and_a_key_at_the_cut_is_hidden_too(self, caplog: pytest.LogCaptureFixture) -> None:
        for before in range(100, 400, 4):
            by_run(seed(Prompt("x")), Script(AuthFailed("x" * before + f" {KEY}" + "y" * 10_000, status=401)))
        assert KEY[:8] not in caplog.text
        assert all(len(line) < 1000 for _, line in logged(caplog))

    def test_functions_are_named_and_their_arguments_are_not(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, logger="fsm_agent")
        by_run(asking(lambda secret: "seen"), Script(function_call("look", secret="hush"), "fine"))
        assert "hush" not in caplog.text


class Odd(Exception):
    def __str__(self) -> str:
        raise LookupError


def endless(n: int) -> None:
    endless(n + 1)


class TestTracebacks:
    def text(self, caplog: pytest.LogCaptureFixture, error: Exception | None) -> str:
        def look() -> str:
            if error is None:
                endless(0)
            raise error

        by_run(asking(look), Script(function_call("look"), "fine"))
        return str(caplog.records[0].exc_text)

    def test_it_begins_with_the_code_of_the_user(self, caplog: pytest.LogCaptureFixture) -> None:
        text = self.text(caplog, KeyError("x"))
        assert text.splitlines()[1].endswith("in look")
        assert text.endswith("KeyError: 'x'")

    def test_an_exception_that_cannot_say_what_is_wrong(self, caplog: pytest.LogCaptureFixture) -> None:
        assert "Odd" in self.text(caplog, Odd())

    def test_keys_and_halves_of_surrogate_pairs_are_hidden(self, caplog: pytest.LogCaptureFixture) -> None:
        text = self.text(caplog, ValueError(f"{KEY} \ud800"))
        assert KEY not in text
        assert text.encode()

    @pytest.mark.parametrize("error", [None, ValueError("x" * 10**6)], ids=["endless", "long"])
    def test_it_is_bounded(self, error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
        text = self.text(caplog, error)
        assert text.count("File ") <= 100
        assert len(text) <= 20_000


def logged_by(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fsm_agent for record in caplog.records if record.name == "bank"]  # type: ignore[attr-defined]


class BrokenLogger(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:
        raise OSError("gone")


class TestLoggingHook:
    def test_each_event_has_its_facts_and_its_call(self, caplog: pytest.LogCaptureFixture) -> None:
        erase = Function.of(lambda: "erased", name="erase", needs_approval=True)
        inner = Agent(Script(function_call("erase"), f"{KEY}\x1b[31m"), functions=[erase], name="inner")
        done = Reply.of("Done.").changed(usage=Usage(input_tokens=7))
        hooks = [LoggingHook("bank")]
        outer = Agent(Script(function_call("inner", task=KEY), done), functions=[inner], hooks=hooks, name="outer")
        with caplog.at_level(logging.INFO, logger="bank"):
            with pytest.raises(CallSuspended) as waiting:
                outer.call("Hi")
            waiting.value.call.advance("run:1.0/ask:1.0", Approved())
            outer.run(waiting.value.call)
        one, other = (
            {"call": "call-1", "agent": "outer"},
            {"call": "call-1/run:1.0", "agent": "inner", "path": "run:1.0"},
        )
        ended: dict[str, Any] = {"event": "FunctionEnded", "is_error": False}
        assert [fact | ({"duration_s": 0} if "duration_s" in fact else {}) for fact in logged_by(caplog)] == [
            one | {"event": "FunctionStarted", "function": "inner", "id": "1.0"},
            one | {"event": "Suspended", "keys": "run:1.0/ask:1.0"},
            other | {"event": "FunctionStarted", "function": "erase", "id": "1.0"},
            other | ended | {"function": "erase", "id": "1.0", "duration_s": 0},
            one | ended | {"function": "inner", "id": "1.0", "duration_s": 0},
            one | {"event": "Done", "state": "Completed", "reason": "answered", "tokens": 7},
        ]
        lines = [line for _, line in logged(caplog)]
        assert all(
            line.startswith(f"call {fact['call']}: {fact['event']}")
            for line, fact in zip(lines, logged_by(caplog), strict=True)
        )
        assert KEY not in caplog.text
        assert caplog.text.replace("\n", "").isprintable()

    def test_each_run_of_a_function_is_logged_before_and_after_with_its_time_and_error(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def divide(a: int, b: int) -> float:
            """Divide."""
            return a / b

        script = Script([function_call("divide", a=1, b=2), function_call("divide", a=1, b=0)], "Done.")
        with caplog.at_level(logging.INFO, logger="bank"):
            Agent(script, functions=[divide], hooks=[LoggingHook("bank")], limits=Limits(parallel=1)).call("Hi")
        facts = logged_by(caplog)[:-1]
        assert [(fact["event"], fact["id"]) for fact in facts] == [
            (name, id) for id in ("1.0", "1.1") for name in ("FunctionStarted", "FunctionEnded")
        ]
        assert all(fact["function"] == "divide" for fact in facts)
        assert [fact["is_error"] for fact in facts[1::2]] == [False, True]
        assert all(0 <= fact["duration_s"] < 60 for fact in facts[1::2])

    def test_an_event_of_an_unknown_call_is_logged_with_its_path(self, caplog: pytest.LogCaptureFixture) -> None:
        hook = LoggingHook("bank")
        team = Team(TeamRecord(), {"warm": Solo(environment=environment(Script("draft")))})
        with caplog.at_level(logging.DEBUG, logger="bank"):
            for event in by_run(team, Script())[:-1]:
                hook.on_event(event)
        steps = [(fact.get("path"), fact["to"]) for fact in logged_by(caplog) if fact["event"] == "Stepped"]
        assert steps == [
            (None, "Drafting"),
            ("warm", "Calling"),
            ("warm", "Completed"),
            (None, "Deciding"),
            (None, "Done"),
        ]

    def test_an_error_in_it_is_logged_and_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        assert Agent(Script("Hi."), hooks=[LoggingHook(BrokenLogger("x"))]).call("Hello").output == "Hi."
        assert {record.name for record in caplog.records if record.exc_info} == {"fsm_agent.hooks"}
