"""A coding agent in phases.

The agent plans, edits and tests. It *cannot* edit before it has a plan, because the model has no function that writes
in the first phase. This does not depend on a prompt: `explore` tries every path and proves it, as in
`tests/flows/test_phases_flow.py`.

- A phase is a state with its own agent. `whole=True` returns the dialog, which the next phase continues.
- A state runs the tests to decide whether the edit is right. After three failed edits, the flow ends.
- Afterwards, `PhaseDetector` tells you which phases a call went through; no row depends on it.

```console
$ python examples/recipes/coding_agent.py
done: add subtracts: make it add.
discover > edit > validate > validate > edit > validate
```

**When not to use it.** If the model may do everything at any time, one `Agent` with all functions is shorter, and the
model chooses the order. Use phases to prevent it from doing something too early.
"""

import sys
from dataclasses import dataclass, field, replace
from typing import Any

from fsm_agent import Agent, CallResult, Client, Dialog
from fsm_agent.call import PhaseDetector
from fsm_agent.clients import client_for
from fsm_agent.flows import Flow, ask, end
from fsm_agent.testing import Script, function_call

FILES = {"main.py": "def add(a, b):\n    return a - b\n"}


@dataclass(frozen=True)
class Work:
    task: str
    dialog: Dialog = field(default_factory=Dialog)  # what was said so far, in all phases
    plan: str = ""
    edits: int = 0


def grep(pattern: str) -> str:
    """Search the files."""
    return "\n".join(f"{name}: {line}" for name, text in FILES.items() for line in text.splitlines() if pattern in line)


def write(path: str, text: str) -> str:
    """Write a file."""
    FILES[path] = text
    return f"wrote {path}"


def run_tests() -> str:
    """Run the tests."""
    space: dict[str, object] = {}
    exec(FILES["main.py"], space)
    add = space["add"]
    assert callable(add)
    return "all passed" if add(2, 2) == 4 else "1 failed: add(2, 2)"


explorer = Agent("openai:gpt-5-mini", name="explorer", functions=[grep], system="You are a programmer.")
editor = Agent("openai:gpt-5-mini", name="editor", functions=[grep, write], system="You are a programmer.")
validator = Agent("openai:gpt-5-mini", name="validator", functions=[run_tests], system="You test.", output=bool)


@ask(explorer, whole=True)
def planning(w: Work) -> str:
    return f"Find out what to do, and write a plan. You cannot edit yet. {w.task}"


@ask(editor, whole=True)
def editing(w: Work) -> Dialog:
    return w.dialog.put("Now do it.")


@ask(validator, whole=True)
def validating(w: Work) -> Dialog:
    return w.dialog.put("Run the tests. Is it right?")


def may_edit(w: Work) -> bool:
    return w.edits < 3


def keep(w: Work, a: CallResult[object]) -> Work:
    return replace(w, dialog=a.dialog)


def keep_plan(w: Work, a: CallResult[str]) -> Work:
    return replace(w, dialog=a.dialog, plan=a.output)


def keep_edit(w: Work, a: CallResult[str]) -> Work:
    return replace(w, dialog=a.dialog, edits=w.edits + 1)


done, stuck = end("done"), end("stuck", failed="three edits did not help")

phases = Flow(
    "phases",
    Work,
    start=planning,
    rows=[
        planning.done(editing, do=keep_plan),
        editing.done(validating, do=keep_edit),
        validating.done(done, of=True, do=keep),
        validating.done(editing, of=False, when=may_edit, do=keep),
        validating.done(stuck, of=False),
    ],
)


def scripted() -> dict[Any, Client]:
    fixed = "def add(a, b):\n    return a + b\n"
    return {
        planning: Script(function_call("grep", pattern="def add"), "add subtracts: make it add."),
        editing: Script(
            function_call("write", path="main.py", text="def add(a, b):\n    return a * b + 1\n"),
            "Done.",
            function_call("grep", pattern="return"),
            function_call("write", path="main.py", text=fixed),
            "Now it adds.",
        ),
        validating: Script(function_call("run_tests"), "false", function_call("run_tests"), "true"),
    }


def main(model: str = "") -> None:
    clients = {state: client_for(model) for state in (planning, editing, validating)} if model else scripted()
    result = phases.call(Work("add(2, 2) has to be 4."), clients=clients)
    print(f"{result.state}: {result.output.plan}")
    print(" > ".join(PhaseDetector().phases(result.output.dialog)))


if __name__ == "__main__":
    main(*sys.argv[1:])
