"""Do the hooks that come with the package show what happens, and change nothing?"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from fsm_agent import Agent, Approved, Denied, Function, Limits, UsageError
from fsm_agent.cli import TerminalHook
from fsm_agent.runtime import LoggingHook
from fsm_agent.testing import Script, function_call


def leak(key: str) -> str:
    """Return the key."""
    return f"{key}\x1b[31m"


def states(agent: Agent[Any, Any]) -> list[str]:
    return [str(step.to) for step in agent.call("Hi").call.record.trace]


def agent(*hooks: Any) -> Agent[Any, Any]:
    return Agent(
        Script(function_call("leak", key="sk-proj-abcdefghijklmnop1234567890"), "[bold]Do\x1b[2Jne."),
        functions=[leak],
        hooks=hooks,
    )


def test_events_are_logged_with_their_facts(caplog: pytest.LogCaptureFixture) -> None:
    hook = LoggingHook("bank", levels={"Stepped": logging.INFO, "FunctionStarted": None})
    with caplog.at_level(logging.INFO, logger="bank"):
        assert states(agent(hook)) == states(agent())
    found = [(record.levelno, record.fsm_agent["event"]) for record in caplog.records if record.name == "bank"]  # type: ignore[attr-defined]
    assert (logging.INFO, "Stepped") in found
    assert [name for _, name in found if name != "Stepped"] == ["FunctionEnded", "Done"]
    assert "sk-proj-abcdefghij" not in caplog.text
    assert "\x1b" not in caplog.text


def test_each_run_of_a_function_is_logged_before_and_after_with_its_time_and_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def divide(a: int, b: int) -> float:
        """Divide."""
        return a / b

    script = Script([function_call("divide", a=1, b=2), function_call("divide", a=1, b=0)], "Done.")
    with caplog.at_level(logging.INFO, logger="bank"):
        Agent(script, functions=[divide], hooks=[LoggingHook("bank")], limits=Limits(parallel=1)).call("Hi")
    facts = [record.fsm_agent for record in caplog.records if record.name == "bank"][:-1]  # type: ignore[attr-defined]
    assert [(fact["event"], fact["id"]) for fact in facts] == [
        (name, id) for id in ("1.0", "1.1") for name in ("FunctionStarted", "FunctionEnded")
    ]
    assert all(fact["function"] == "divide" for fact in facts)
    assert [fact["is_error"] for fact in facts[1::2]] == [False, True]
    assert all(0 <= fact["duration_s"] < 60 for fact in facts[1::2])


def test_the_terminal_shows_the_answer_and_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert states(agent(TerminalHook())) == states(agent())
    out, err = capsys.readouterr()
    assert "[bold]Do" in out
    assert "leak(" in err
    assert "Calling" in err
    assert "\x1b" not in out + err


class Broken:
    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError("gone")

    def flush(self) -> None:
        raise OSError("gone")

    def isatty(self) -> bool:
        return False


class BrokenLogger(logging.Logger):
    def isEnabledFor(self, level: int) -> bool:
        raise OSError("gone")


@pytest.mark.parametrize("make", [TerminalHook, lambda: LoggingHook(BrokenLogger("x"))])
def test_an_error_in_a_hook_is_logged_and_changes_nothing(
    make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = states(agent())
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Broken())
        patched.setattr(sys, "stderr", Broken())
        assert states(agent(make())) == expected
    assert any(record.name == "fsm_agent.hooks" for record in caplog.records)


def test_an_unknown_event_or_level_is_refused() -> None:
    with pytest.raises(UsageError, match="Stepped"):
        LoggingHook(levels={"Steped": 10})
    with pytest.raises(UsageError, match="levels"):
        LoggingHook(levels={"Stepped": "INFO"})  # type: ignore[dict-item]


def test_the_terminal_says_which_call_was_denied_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    def erase(path: str) -> str:
        """Erase a file."""
        return "erased"

    erasing = Function.of(erase, needs_approval=True)
    asked = Script([function_call("erase", path="a"), function_call("erase", path="b")], "Done.")
    reasons = {"a": Denied("not\x1b[2J mine"), "b": Approved()}
    Agent(asked, functions=[erasing], approve=lambda c: reasons[c.arguments["path"]], hooks=[TerminalHook()]).call("Hi")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "denied" in line]
    assert "erase" in line
    assert "not" in line
    assert "mine" in line
    assert "\x1b" not in line
