"""An orchestrator: a model plans an article, a function researches, and an agent writes until the editor is satisfied.

Run it with ``python examples/orchestrator.py``; a script stands in for the models, so it needs no key.
"""

import json

from fsm_agent import Agent
from fsm_agent.flows.orchestrator import Blueprint, Orchestrator
from fsm_agent.testing import Script

PLAN = {
    "goal": "an article",
    "steps": [
        {
            "step_id": "facts",
            "description": "find facts",
            "intent_template": "{{ task }}",
            "assigned_agent": "research",
        },
        {
            "step_id": "draft",
            "description": "write",
            "intent_template": "Write: {{ facts }}",
            "assigned_agent": "writer",
        },
        {
            "step_id": "review",
            "description": "edit",
            "intent_template": "Edit: {{ draft }}",
            "assigned_agent": "editor",
        },
    ],
    "loops": [{"step_ids": ["draft", "review"], "max_iterations": 3, "until": "DONE"}],
}


def research(task: str) -> str:
    """Finds facts about a topic."""
    return f"{task}: each value has one owner."


def team(planner: Script, writer: Script, editor: Script) -> Orchestrator:
    """Return an orchestrator whose team is a function and two agents."""
    return Orchestrator(
        [research, Agent(writer, name="writer", system="You write."), Agent(editor, name="editor", system="You edit.")],
        Blueprint("First the facts, then a draft; it is edited until it is good."),
        planner=Agent(planner, name="planner"),
    )


def main() -> None:
    """Write an article."""
    writer = Script("Values have owners.", "Each value has exactly one owner.")
    editor = Script("Too vague: how many owners?  This is not DONE yet.", "Clear.\nDONE")
    result = team(Script(json.dumps(PLAN)), writer, editor).call("Rust ownership")
    for entry in result.journal:
        print(f"{entry.step_id} by {entry.agent}: {entry.output!r}")
    print(f"{result.state}: {result.step_output('draft')}")


if __name__ == "__main__":
    main()
