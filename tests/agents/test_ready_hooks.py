"""Do the hooks that come with the package show what happens, and change nothing?"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fsm_agent import Agent, Approved, Denied, Function
from fsm_agent.agents import Metrics
from fsm_agent.call import PhaseDetector, PhaseRule
from fsm_agent.cli import TerminalHook
from fsm_agent.flows import Flow, FlowFailed, end, execute
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


def test_an_error_of_the_terminal_is_logged_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = states(agent())
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Broken())
        patched.setattr(sys, "stderr", Broken())
        assert states(agent(TerminalHook())) == expected
    assert any(record.name == "fsm_agent.hooks" for record in caplog.records)


HOOKS: dict[str, tuple[Callable[[], Any], Callable[[Any, str], object], object, object]] = {
    "log": (lambda: LoggingHook("bank"), lambda hook, shown: "Done state=paid reason=paid" in shown, True, False),
    "terminal": (TerminalHook, lambda hook, shown: shown.splitlines()[0], '"ada"', ""),
    "metrics": (Metrics, lambda hook, shown: (hook.calls, [*hook.endings]), (1, ["paid"]), (1, ["Failed"])),
    "phases": (
        lambda: PhaseDetector([PhaseRule("paying", ["pay"])]).hook(),
        lambda hook, shown: hook.phase,
        "paying",
        "explore",
    ),
}


@pytest.mark.parametrize("name", HOOKS)
def test_each_follows_a_flow_as_it_follows_an_agent(
    name: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    make, shown, *expected = HOOKS[name]
    caplog.set_level(logging.INFO, logger="bank")

    @execute
    def pay(name: str) -> str:
        if not name:
            raise LookupError(name)
        return name

    for data, right in zip(("ada", ""), expected, strict=True):
        hook = make()
        flow = Flow("paying", str, start=pay, rows=[pay.done(end("paid"))], hooks=[hook])
        with suppress(FlowFailed):
            assert flow.call(data).output == data
        assert shown(hook, f"{capsys.readouterr().out}\n{caplog.text}") == right
        assert [record.name for record in caplog.records if record.levelno >= logging.ERROR] == []
        caplog.clear()


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
