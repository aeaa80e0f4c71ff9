"""Is everything in the README true?"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from dataclasses import fields
from typing import Annotated, Any, Literal

import pytest
from provider_table import table
from pydantic import BaseModel, BeforeValidator, Field
from support.paths import ROOT
from support.stub_server import StubServer

from fsm_agent import Agent, Context, Function, Limits, Reason, State, function, restore, snapshot
from fsm_agent.agents.agent_base import scoped_registry
from fsm_agent.functions.policy import Policy
from fsm_agent.lifecycle.outcomes import Begun, Replied
from fsm_agent.messages.reply import Reply
from fsm_agent.testing import Script, call

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.strip().splitlines()[-1][:40])
def test_every_python_block_runs(block, monkeypatch, capsys):
    with StubServer(["42"] * 8) as server, scoped_registry():
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-readme")
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_test_of_the_readme_passes_with_the_installed_plugin(tmp_path):
    (block,) = [block for block in BLOCKS if "def test_" in block]
    (tmp_path / "test_readme_example.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fsm-coverage", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "MISSED" in done.stdout


def test_the_ci_runs_the_command_of_the_readme():
    (command,) = re.findall(r"^\[ \.venv/dev .*$", README, re.MULTILINE)
    shown = (ROOT / ".ci" / "run").read_text().replace("bash -c", "printf '%s\\n'")
    script = re.sub(r"^if ! command.*?^fi$", "", shown, flags=re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", script.replace('$(dirname "$0")/..', str(ROOT))], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [command, f"{command} -m long"]


@pytest.mark.parametrize("link", re.findall(r"\]\((?!https?:)([^)#]+)\)", README))
def test_links_into_the_repository_lead_somewhere(link):
    assert (ROOT / link).exists()


def test_the_states_are_those_of_the_machine():
    assert all(f"`{state}`" in README for state in State)


def test_the_table_of_providers_is_that_of_the_catalogue():
    assert table() in README


@pytest.mark.parametrize("name", [item.name for item in (*fields(Limits), *fields(Policy))] + [r.name for r in Reason])
def test_every_limit_policy_and_reason_is_named(name):
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`", README)


def test_a_function_whose_time_is_up_runs_on_unheard():
    go_on, ended = threading.Event(), threading.Event()

    @function(timeout_s=0.01)
    def search(context: Context) -> str:
        """Search."""
        assert go_on.wait(60)
        assert threading.current_thread().daemon
        assert context.is_cancelled()
        ended.set()
        return "too late"

    result = Agent(Script(call("search"), "Nothing."), functions=[search]).call("Where is it?")
    assert result.function_calls[0].error == "TimeoutError: search did not return within 0.01 s"
    go_on.set()
    assert ended.wait(60)
    assert result.function_calls[0].result is None


def test_a_function_is_run_again_under_its_key_when_its_result_was_lost():
    runs: list[str] = []

    @function
    def pay(context: Context) -> str:
        """Pay."""
        runs.append(context.idempotency_key)
        return "paid"

    agent = Agent(Script("Done.", "Done."), functions=[pay])
    asked = agent.seed("Pay.")
    asked.advance("begin", Begun(at_s=0.0, id="c1"))
    asked.advance("model:0", Replied(reply=Reply.of(call("pay"))))
    document = snapshot(asked)
    assert agent.run(asked).output == agent.run(restore(document, agent.prompt)).output == "Done."
    assert len(runs) == 2
    assert len(set(runs)) == 1


def test_an_agent_that_would_be_suspended_in_a_function_is_told_as_an_error():
    @function(needs_approval=True)
    def erase() -> str:
        """Erase."""
        return "gone"

    inner = Agent(Script(call("erase")), name="inner", functions=[erase])
    result = Agent(Script(call("inner", task="go"), "Alas."), functions=[inner.as_function()]).call("go")
    assert result.function_calls[0].error.startswith("CallSuspended: the agent call waits in ToolInterrupt")


def test_an_agent_in_a_function_has_the_deps_of_the_call_that_asks():
    @function
    def who(context: Context[str]) -> str:
        """Who asks?"""
        return context.deps

    inner = Agent(Script(call("who"), lambda request: request.messages[-1].text), name="inner", functions=[who])
    result = Agent(Script(call("inner", task="go"), "ok"), functions=[inner.as_function()]).call("go", deps="Ada")
    assert result.function_calls[0].result == "Ada"


def test_what_a_hook_raises_ends_the_driver():
    class Broken:
        def on_stepped(self, event):
            raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        Agent(Script("hi"), hooks=[Broken()]).call("go")


looks: list[Any] = []


class Named(BaseModel):
    kind: Literal["here"] = "here"
    name: Annotated[str, BeforeValidator(lambda name: looks.append(name) or name)]


class Here(Named):
    child: Here | There | None = None


class There(Named):
    child: Here | There | None = None


class Told(Named):
    child: Annotated[Told | Other, Field(discriminator="kind")] | None = None


class Other(Named):
    kind: Literal["there"] = "there"  # type: ignore[assignment]
    child: Annotated[Told | Other, Field(discriminator="kind")] | None = None


@pytest.mark.parametrize(("tree", "expected"), [(Here, 2**10 - 1), (Told, 10)])
def test_a_recursive_union_without_a_discriminator_takes_exponential_time(tree, expected):
    def plant(tree: Any) -> str:
        """Plant a tree."""
        return "planted"

    plant.__annotations__["tree"] = tree
    value = None
    for _ in range(10):
        value = {"kind": "here", "name": "n", "child": value}
    looks.clear()
    Function.of(plant).bind(json.dumps({"tree": value}))
    assert len(looks) == expected
