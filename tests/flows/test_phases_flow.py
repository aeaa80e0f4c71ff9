"""Is editing impossible before there is a plan, in the flow of the examples?"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
from flow_runs import Driver, everywhere
from support.paths import ROOT

from fsm_agent import Agent, Message, Reply
from fsm_agent.flows import FlowFailed
from fsm_agent.testing import Script, explore, function_call


@pytest.fixture
def p(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("phases_example", ROOT / "examples" / "recipes" / "coding_agent.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "phases_example", module)
    spec.loader.exec_module(module)
    return module


BROKEN = "def add(a, b):\n    return a - b\n"


def write(text: str = "x = 1\n") -> Any:
    return function_call("write", path="main.py", text=text)


class TestPlanGate:
    def test_nothing_is_edited_before_there_is_a_plan(self, p: Any) -> None:
        eager = Script(write(), write(), "A plan.")
        clients = {p.planning: eager, p.editing: Script("No."), p.validating: Script("true")}
        result = p.phases.call(p.Work("Edit!"), clients=clients)
        assert p.FILES == {"main.py": BROKEN}
        errors = [
            part.text for message in result.output.dialog for part in message.parts if part.kind == "function_result"
        ]
        assert len(errors) == 2
        assert all("write" in text for text in errors)
        assert [f.name for f in eager.requests[0].functions] == ["grep"], "it is not even offered"

    def test_no_plan_and_there_is_no_way_to_the_edit(self, p: Any) -> None:
        no = Reply(message=Message.of("assistant", "no"), finish="refusal", refusal="no")
        with pytest.raises(FlowFailed) as failed:
            p.phases.call(p.Work("Edit!"), clients={p.planning: Script(write(), no)})
        assert failed.value.run.state == "Failed"
        assert p.FILES == {"main.py": BROKEN}

    def test_wherever_the_flow_can_be_an_edit_has_a_plan(self, p: Any) -> None:
        def words(text: str) -> Any:
            return Agent(Script(text)).call("Go")

        def verdict(text: str) -> Any:
            return Agent(Script(text), output=bool).call("Go")

        answers = {p.planning: [words("A plan.")], p.editing: [words("Done.")]}
        answers[p.validating] = [verdict("true"), verdict("false")]
        found = explore(p.phases, p.Work("x"), answers, holds=lambda state, w: state != "editing" or w.plan != "")
        assert (found.is_whole, found.missed) == (True, ())
        assert found.ends.keys() >= {"done", "stuck", "Failed"}

    @everywhere
    def test_the_dialog_goes_on_through_all_phases(self, driven: Driver, p: Any) -> None:
        clients = {
            p.planning: Script("A plan."),
            p.editing: Script("One.", "Two."),
            p.validating: Script("false", "true"),
        }
        run = p.phases.prepare(p.Work("Do it."), clients=clients)
        driven(p.phases, run)
        assert (run.state, run.data.plan, run.data.edits) == ("done", "A plan.", 2)
        said = [message.text for message in run.data.dialog if message.role == "assistant"]
        assert said == ["A plan.", "One.", "false", "Two.", "true"]
        assert p.phases.restore(run.snapshot()).data == run.data


def test_the_example_runs(p: Any, capsys: pytest.CaptureFixture[str]) -> None:
    p.main()
    assert capsys.readouterr().out == (
        "done: add subtracts: make it add.\ndiscover > edit > validate > validate > edit > validate\n"
    )
    assert p.FILES["main.py"].endswith("a + b\n")
