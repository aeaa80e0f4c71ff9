"""Do the examples of agents do what they show, sync and async, with equal traces?"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from support.paths import ROOT

from fsm_agent import build_agent
from fsm_agent.messages import FunctionResult
from fsm_agent.testing import Script, call, registries

LIMIT_S = 100


@pytest.fixture(autouse=True)
def _scopes():
    with registries():
        yield


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Steps:
    """A hook that notes every step."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, str]] = []

    def on_stepped(self, event: Any) -> None:
        self.seen.append((event.trigger, event.source, event.to, event.detail))


def result_in(script: Script) -> str:
    """The result of a function in the second request."""
    (result,) = [part.text for part in script.requests[1].messages[-1].parts if isinstance(part, FunctionResult)]
    return result


@pytest.mark.system
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("bank_support", "block_card=False risk=1"),
        ("custom_agent", "Air scatters blue light most."),
        ("triage", "repairs: Your router is running again."),
    ],
)
def test_it_runs_as_it_stands(name, says, tmp_path):
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.splitlines()[-1].endswith(says)


class TestBankSupport:
    def test_the_traces_are_equal(self):
        bank = example("bank_support")
        deps = bank.SupportDeps(customer_id=123, bank=bank.Bank())
        steps, scripts = (Steps(), Steps()), (bank.rehearsed(), bank.rehearsed())
        answers = [
            bank.ask(bank.support(scripts[0], [steps[0]]), "What is my balance?", deps),
            asyncio.run(bank.ask_async(bank.support(scripts[1], [steps[1]]), "What is my balance?", deps)),
        ]
        assert answers[0] == answers[1]
        assert answers[0].risk == 1
        assert steps[0].seen == steps[1].seen
        triggers = [trigger for trigger, *_ in steps[0].seen]
        assert triggers == ["begun", "functions_asked", "returned", "parse_failed", "answered"]
        asked = [[message.text for message in request.messages] for request in scripts[0].requests]
        assert asked == [[message.text for message in request.messages] for request in scripts[1].requests]
        assert "The customer's name is Maria" in asked[0][0]
        (result,) = [
            part.text for part in scripts[0].requests[1].messages[-1].parts if isinstance(part, FunctionResult)
        ]
        assert result == "123.45 EUR"
        assert "risk" in asked[2][-1]


class TestCustomAgent:
    @pytest.mark.spec("3.24: a subclass registers itself", "3.24: sub-agents by name")
    def test_the_traces_are_equal(self):
        custom = example("custom_agent")
        steps, scripts = (Steps(), Steps()), (custom.rehearsed(), custom.rehearsed())
        built = [
            build_agent(custom.CONFIG, kind, client=script, hooks=[hook])
            for kind, script, hook in zip(("research", "async_research"), scripts, steps, strict=True)
        ]
        answers = [built[0]("Why is the sky blue?"), asyncio.run(built[1].acall("Why is the sky blue?")).output]
        assert answers == ["Air scatters blue light most."] * 2
        assert steps[0].seen == steps[1].seen
        triggers = [trigger for trigger, *_ in steps[0].seen]
        assert triggers == ["begun", "functions_asked", "returned", "parse_failed", "answered", "begun", "answered"]
        said = [[message.text for message in request.messages] for request in scripts[0].requests]
        assert said == [[message.text for message in request.messages] for request in scripts[1].requests]
        assert said[0][0] == "You find facts in notes."
        assert said[3] == [
            "You write plain English.",
            "Answer Why is the sky blue? in one sentence, from these facts: ['Air scatters short waves more.']",
        ]
        assert scripts[0].requests[0].settings.temperature == 0


class TestTriage:
    def test_each_agent_sees_the_dialog_with_its_own_system_prompt_and_functions(self):
        triage = example("triage")
        scripts = (
            Script(call("transfer_to_billing")),
            Script(call("find_order", number=18), "There is no such order."),
            Script(),
        )
        result = triage.support(*scripts).call("Refund order 18.")
        assert result.output == "There is no such order."
        (asked,), (opened, told) = scripts[0].requests, scripts[1].requests
        assert [function.name for function in asked.functions] == ["transfer_to_billing", "transfer_to_repairs"]
        assert [function.name for function in opened.functions] == ["find_order", "transfer_to_triage"]
        assert (opened.messages[0].text, opened.messages[1].text) == ("You do refunds.", "Refund order 18.")
        assert result_in(scripts[1]) == "there is no such order"
        assert told.messages[0].text == "You do refunds."
        assert result.record.governed_by == "transfer_to_billing"
