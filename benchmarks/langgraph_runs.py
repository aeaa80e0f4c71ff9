"""Runs of LangGraph's prebuilt agent with its Postgres saver: one process of `throughput`, which says what is done.

Arguments: the address, the database's schema, the number of this process, of how many, how many runs, how many at once.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

TASK = "Please add up the numbers and tell me the total."
MODEL_S, ROUNDS = 0.05, 3
USAGE = {"input_tokens": 50, "output_tokens": 10, "total_tokens": 60}


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class Model(BaseChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        time.sleep(MODEL_S)
        done = sum(message.type == "tool" for message in messages)
        if done < ROUNDS:
            call = {"name": "add", "args": {"a": 0, "b": 1000 * done}, "id": f"c{done}", "type": "tool_call"}
            message = AIMessage(content="", tool_calls=[call], usage_metadata=USAGE)
        else:
            message = AIMessage(content=f"The total of {ROUNDS} additions is ready.", usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    @property
    def _llm_type(self) -> str:
        return "scripted"


def main(url: str, schema: str, share: int, processes: int, count: int, at_once: int) -> None:
    if not count:  # only the tables are to be made
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
            connection.execute(f"SET search_path = {schema}")
            PostgresSaver(connection).setup()
        return
    options = {"autocommit": True, "prepare_threshold": 0, "options": f"-c search_path={schema}"}
    pool = ConnectionPool(url, min_size=at_once, max_size=at_once, kwargs={**options, "row_factory": dict_row})
    pool.wait()
    agent = create_agent(Model(), [add], checkpointer=PostgresSaver(pool))

    def one(number: int) -> None:
        config: Any = {"configurable": {"thread_id": f"run{number}"}}
        result = agent.invoke({"messages": [{"role": "user", "content": TASK}]}, config, durability="sync")
        assert result["messages"][-1].content == f"The total of {ROUNDS} additions is ready."

    before_s = sum(os.times()[:2])
    print("ready", flush=True)
    sys.stdin.readline()
    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(one, range(share, count, processes)))
    print(sum(os.times()[:2]) - before_s, flush=True)
    pool.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
