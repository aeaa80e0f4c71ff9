"""Rounds of LangGraph's prebuilt agent with its SQLite saver: ``langgraph_rounds.py FILE ROUNDS``; see `store_costs`.

Prints how many bytes it has handed to the database, how many to write(), and how many of those went to a disk.  The
messages are those of `benchmarks.works.turns`, which cannot be imported here.
"""

import sqlite3
import sys
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver

SYSTEM = "You are a careful assistant. Use the functions you are given."
TASK = "Please add up the numbers and tell me the total."
USAGE = {"input_tokens": 50, "output_tokens": 10, "total_tokens": 60}


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class Scripted(BaseChatModel):
    rounds: int
    done: int = 0

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        n, self.done = self.done, self.done + 1
        if n < self.rounds:
            call = {"name": "add", "args": {"a": 0, "b": 1000 * n}, "id": f"c{n}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call], usage_metadata=USAGE)
        else:
            message = AIMessage(content=f"The total of {self.rounds} additions is ready.", usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "scripted"


def counted(name: str) -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines[name])


def main(path: str, rounds: int) -> None:
    before = counted("wchar"), counted("write_bytes")
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    agent = create_agent(Scripted(rounds=rounds), tools=[add], system_prompt=SYSTEM, checkpointer=saver)
    config: Any = {"recursion_limit": 2 * rounds + 10, "configurable": {"thread_id": "run"}}
    result = agent.invoke({"messages": [{"role": "user", "content": TASK}]}, config)
    assert result["messages"][-1].content == f"The total of {rounds} additions is ready."
    payload = "SELECT (SELECT sum(length(checkpoint) + length(metadata)) FROM checkpoints)"
    sizes = connection.execute(f"{payload} + (SELECT coalesce(sum(length(value)), 0) FROM writes)").fetchone()
    connection.close()
    print(sizes[0], counted("wchar") - before[0], counted("write_bytes") - before[1])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
