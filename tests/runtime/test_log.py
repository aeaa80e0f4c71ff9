"""Can a call be followed in the log, under every driver?"""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import weakref
from typing import Any

import pytest
from support.drivers import Driver, anyhow, seed, world
from support.nested_process import Solo, Team, TeamRecord

from fsm_agent.errors import AuthFailed, RateLimited, Retry
from fsm_agent.functions import Function
from fsm_agent.lifecycle import AgentCall, Cancelled, Limits
from fsm_agent.messages import Stepped
from fsm_agent.prompts import Prompt
from fsm_agent.testing import Script, call

LONG_S = 30.0


def logged(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[tuple[str, str]]:
    return [(entry.levelname, entry.getMessage()) for entry in caplog.records if entry.levelno >= level]


def asking(function: Any, **policy: Any) -> AgentCall:
    return seed(Prompt("x", functions=[Function.of(function, name="look", **policy)]), limits=Limits(recalls=1))


@pytest.mark.spec("4.31: logging")
@anyhow
def test_every_step_has_a_line(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    one = asking(lambda: "seen")
    driven(one, Script(RateLimited("slow", status=429, retry_after_s=0.001), call("look"), "fine"))
    failed = "RateLimited: slow [model=script, status=429]; again in 0.001 s"
    assert logged(caplog) == [
        ("DEBUG", "call call-1: Seeded -> Calling: begun (begin)"),
        ("WARNING", f"call call-1: Calling -> Backoff: model_failed [may_recall] (model:0): {failed}"),
        ("DEBUG", "call call-1: Backoff -> Calling: slept (sleep:1)"),
        ("DEBUG", "call call-1: Calling -> ToolInterrupt: functions_asked [some_to_run] (model:1): look"),
        ("DEBUG", "call call-1: ToolInterrupt -> Calling: returned (run:2.0): look"),
        ("DEBUG", "call call-1: Calling -> Completed: answered (model:2)"),
    ]


@anyhow
def test_only_failures_are_for_everybody(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fsm_agent")
    driven(seed(Prompt("x")), Script("fine"))
    assert logged(caplog) == []
    driven(seed(Prompt("x")), Script(AuthFailed("no", status=401)))
    line = "call call-1: Calling -> Failed: model_failed (model:0): AuthFailed: no [model=script, status=401]"
    assert logged(caplog) == [("WARNING", line)]


@anyhow
def test_a_cancellation_is_no_failure(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    one = seed(Prompt("x"))
    one.cancel("enough")
    driven(one, Script("never"))
    assert logged(caplog, logging.INFO) == []


@anyhow
def test_steps_of_processes_inside_have_their_paths(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    asked = {name: Solo(world=world(Script("draft"))) for name in ("warm", "terse")}
    driven(Team(TeamRecord(), asked), Script())
    lines = [line for _, line in logged(caplog)]
    assert "call call-1/warm: Calling -> Completed: answered (model:0)" in lines
    assert lines[-1].startswith("call call-1: Deciding -> Done: picked")


def broken() -> str:
    found: dict[str, str] = {}
    return found["key"]


@anyhow
@pytest.mark.parametrize("policy", [{}, {"on_error": "fail"}, {"timeout_s": LONG_S}], ids=str)
def test_a_function_that_raises_is_logged_with_its_traceback(
    driven: Driver, policy: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    one = asking(broken, **policy)
    driven(one, Script(call("look"), "fine"))
    entry = caplog.records[0]
    assert (entry.levelname, entry.getMessage()) == (
        "WARNING",
        "call call-1: function 'look' (run:2.0) raised KeyError",
    )
    assert entry.exc_text.startswith("Traceback (most recent call last):\n  File ")
    assert 'return found["key"]' in entry.exc_text
    assert "fsm_agent" not in entry.exc_text.split("in broken")[0].rpartition("File")[2].rpartition("/")[2]
    assert entry.exc_text in caplog.text, "formatters write it"
    (function_call,) = one.record.function_calls
    assert function_call.error == "KeyError: 'key'", "the model is told without it"


@anyhow
def test_each_attempt_is_logged_and_a_word_to_the_model_is_none(
    driven: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = [OSError("1"), OSError("2"), Retry("give another")]

    def flaky() -> str:
        raise errors.pop(0)

    driven(asking(flaky, on_error="retry"), Script(call("look"), "fine"))
    said = [line for _, line in logged(caplog, logging.INFO)]
    beginning = "call call-1: function 'look' (run:2.0) raised OSError"
    assert said == [beginning, f"{beginning} at attempt 2"]


@pytest.mark.system
@anyhow
def test_a_function_that_takes_too_long_is_logged(driven: Driver, caplog: pytest.LogCaptureFixture) -> None:
    async def slow() -> str:
        import asyncio

        await asyncio.sleep(LONG_S)
        return "late"

    driven(asking(slow, timeout_s=0.01), Script(call("look"), "fine"))
    assert logged(caplog) == [("WARNING", "call call-1: function 'look' (run:2.0) did not return within 0.01 s")]


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
        driven(asking(look), Script(call("look"), "fine"))
        assert [ref() for ref in kept] == [None]
    finally:
        gc.enable()
    assert "Oops: no" in caplog.text


def test_what_is_advanced_by_hand_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="fsm_agent")
    one = seed(Prompt("x"))
    one.advance("", Cancelled())
    assert isinstance(one.step, Stepped)
    assert logged(caplog) == []


@pytest.mark.system
def test_importing_the_package_loads_no_logging() -> None:
    code = "import sys, fsm_agent; from fsm_agent import Agent; sys.exit('logging' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
