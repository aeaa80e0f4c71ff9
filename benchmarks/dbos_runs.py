"""Runs of a pydantic-ai agent on DBOS: one process of `throughput`, which says what is done.

Arguments: the address, the database's schema, the number of this process, of how many, how many runs, how many at once.
"""

import asyncio
import os
import sys
from typing import Any

from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

TASK = "Please add up the numbers and tell me the total."
MODEL_S, ROUNDS = 0.05, 3


async def model(messages: Any, info: Any) -> ModelResponse:
    await asyncio.sleep(MODEL_S)
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    if done < ROUNDS:
        return ModelResponse(parts=[ToolCallPart("add", {"a": 0, "b": 1000 * done})])
    return ModelResponse(parts=[TextPart(f"The total of {ROUNDS} additions is ready.")])


def main(url: str, schema: str, share: int, processes: int, count: int, at_once: int) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": url.replace("postgresql://", "postgresql+psycopg://"),
            "dbos_system_schema": schema,
            "application_version": "1",
            "executor_id": f"process{share}",
            "log_level": "ERROR",
        }
    )
    agent: Agent[None, str] = Agent(FunctionModel(model), name="adder", capabilities=[DBOSDurability()])

    @agent.tool_plain
    @DBOS.step()  # as its documentation says of tools that do something
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @DBOS.workflow()
    async def run() -> str:
        return (await agent.run(TASK)).output

    DBOS.launch()

    async def drive() -> None:
        free = asyncio.Semaphore(at_once)

        async def one(number: int) -> None:
            async with free:
                with SetWorkflowID(f"{schema}-run{number}"):
                    output = await run()
            assert output == f"The total of {ROUNDS} additions is ready."

        await asyncio.gather(*[one(number) for number in range(share, count, processes)])

    before_s = sum(os.times()[:2])
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(drive())
    print(sum(os.times()[:2]) - before_s, flush=True)
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
