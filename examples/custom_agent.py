"""An agent with two sub-agents: python examples/custom_agent.py "Why is the sky blue?" [provider:model]

A subclass of `AgentBase` names its type and group, and loads its prompts by name.  Its `answer` says which sub-agent
does which part of a task.  If you name no model, a script stands in for it, so this needs neither a key nor a network.
"""

import asyncio
import sys
from typing import Any

from pydantic import BaseModel, Field

from fsm_agent import AgentBase, Dialog, Prompt, Prompts, build_agent, function
from fsm_agent.prompts import register_prompt
from fsm_agent.testing import Script, function_call

NOTES = {"sky": "Air scatters short waves of light more than long ones (Rayleigh, 1871)."}


class Finding(BaseModel):
    """The findings of a researcher."""

    facts: list[str] = Field(min_length=1)


@function
def search_notes(topic: str) -> str:
    """Return the notes on a topic.

    Args:
        topic: One word.
    """
    return NOTES.get(topic, f"There are no notes on {topic!r}; there are some on {', '.join(NOTES)}.")


register_prompt(
    Prompt("Find out: {{ task }}", path="research/task_query", functions=[search_notes], output=Finding), overwrite=True
)
register_prompt(
    Prompt("Answer {{ task }} in one sentence, from these facts: {{ facts }}", path="research/edit"), overwrite=True
)

CONFIG: dict[str, Any] = {
    "agent_type": "research",
    "model": "openai:gpt-5-mini",
    "global": {"profile": "deterministic", "limits": {"parse_retries": 2}},
    "agent_configs": {
        "researcher": {"system": "You find facts in notes.", "limits": {"rounds": 3}},
        "editor": {"system": "You write plain English.", "limits": {"rounds": 0}},
    },
}


class Research(AgentBase[str]):
    agent_type = "research"
    agent_group = ("researcher", "editor")
    expertise = "Answers questions from notes."

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prompts = Prompts("research")

    def answer(self, task: str) -> str:
        found: Finding = self.agents["researcher"].call(self.query(task)).output
        edited = self.agents["editor"].call(self.prompts("edit")(task=task, facts=found.facts))
        return edited.text

    def query(self, task: str) -> Dialog:
        return self.agents["researcher"].init_dialog().put(self.prompts("task_query")(task=task))


class AsyncResearch(AgentBase[str]):
    agent_type = "async_research"
    agent_group = Research.agent_group
    expertise = Research.expertise

    async def answer(self, task: str) -> str:
        prompts, researcher = Prompts("research"), self.agents["researcher"]
        query = researcher.init_dialog().put(prompts("task_query")(task=task))
        found: Finding = (await researcher.acall(query)).output
        edited = await self.agents["editor"].acall(prompts("edit")(task=task, facts=found.facts))
        return edited.text


def rehearsed() -> Script:
    """Return a script that searches the notes, answers once in the wrong format, and then gives a valid answer."""
    return Script(
        function_call("search_notes", topic="sky"),
        "Air scatters blue light.",
        '{"facts": ["Air scatters short waves more."]}',
        "Air scatters blue light most.",
    )


def main(task: str = "Why is the sky blue?", model: str | None = None) -> None:
    if model is not None:
        with build_agent(CONFIG, model=model) as agent:
            print(agent(task))
        return
    print(build_agent(CONFIG, client=rehearsed())(task))
    print(asyncio.run(build_agent(CONFIG, "async_research", client=rehearsed()).acall(task)).output)


if __name__ == "__main__":
    main(*sys.argv[1:])
