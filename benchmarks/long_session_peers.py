"""A long coding session with one library, see `benchmarks.long_session`: ``long_session_peers.py WHICH URL ROUNDS``.

It runs in an environment of its own, which has only that library, and ends with an error unless the session was played
to its end.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from support.coding_session import DONE, HARD, SYSTEM, TASK, session

TRIGGER = HARD * 3 // 4  # tokens from which on each of them summarizes
MODEL = "m"


def fsm_agent(base_url: str, read: Callable[[str, int], str], rounds: int) -> str:
    from fsm_agent import Agent, Limits, function
    from fsm_agent.clients import HttpClient
    from fsm_agent.context import Budget

    with HttpClient("openai-chat", MODEL, api_key="k", base_url=base_url) as client:
        limits = Limits(rounds=None, identical_rounds=None)
        agent = Agent(
            client, system=SYSTEM, functions=[function(read)], limits=limits, context=Budget(hard=HARD, soft=TRIGGER)
        )
        return str(agent.call(TASK).output)


def _pydantic_ai_model(base_url: str) -> Any:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=base_url, api_key="k")
    return OpenAIChatModel(MODEL, provider=provider, profile={"context_window": HARD})


def _with_pydantic_ai(model: Any, read: Callable[[str, int], str], capability: Any) -> str:
    from pydantic_ai import Agent, UsageLimits

    agent = Agent(model, instructions=SYSTEM, tools=[read], capabilities=[capability])
    return agent.run_sync(TASK, usage_limits=UsageLimits(request_limit=None)).output


def pydantic_ai(base_url: str, read: Callable[[str, int], str], rounds: int) -> str:
    """Summarize as its page on message history does: all but the newest, by an agent that is shown the messages.

    As that page demands, no call is left without its result; and it is done once the window has filled, not at ten
    messages.
    """
    from pydantic_ai import Agent, ModelMessage, RunContext
    from pydantic_ai.capabilities import ProcessHistory

    model = _pydantic_ai_model(base_url)
    instructions = (
        "\nSummarize this conversation, omitting small talk and unrelated topics.\n"
        "Focus on the technical discussion and next steps.\n"
    )
    summarize_agent = Agent(model, instructions=instructions)

    async def summarize_old_messages(ctx: RunContext[None], messages: list[ModelMessage]) -> list[ModelMessage]:
        used = ctx.context_window_used
        if used is None or used <= TRIGGER / HARD:
            return messages
        summary = await summarize_agent.run(message_history=messages[:-2])
        return summary.new_messages() + messages[-2:]

    # It is called with the context only if its annotations can be read, and these names are local.
    summarize_old_messages.__annotations__ = {"ctx": RunContext[None], "messages": list, "return": list}
    return _with_pydantic_ai(model, read, ProcessHistory(summarize_old_messages))


def pydantic_ai_harness(base_url: str, read: Callable[[str, int], str], rounds: int) -> str:
    from pydantic_ai_harness.compaction import SummarizingCompaction

    capability: Any = SummarizingCompaction(max_tokens=TRIGGER)
    return _with_pydantic_ai(_pydantic_ai_model(base_url), read, capability)


def langchain(base_url: str, read: Callable[[str, int], str], rounds: int) -> str:
    from langchain.agents import create_agent
    from langchain.agents.middleware import SummarizationMiddleware
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=MODEL, base_url=base_url, api_key="k")  # type: ignore[arg-type]
    shortened = SummarizationMiddleware(model=model, trigger=("tokens", TRIGGER))
    agent: Any = create_agent(model, tools=[read], system_prompt=SYSTEM, middleware=[shortened])
    messages = {"messages": [{"role": "user", "content": TASK}]}
    return str(agent.invoke(messages, {"recursion_limit": 10 * rounds + 100})["messages"][-1].content)


LIBRARIES = {one.__name__: one for one in (fsm_agent, pydantic_ai, pydantic_ai_harness, langchain)}


def main(which: str, base_url: str, rounds: int) -> None:
    results = iter([one.result for one in session(rounds).rounds])

    def read(path: str, line: int) -> str:
        """Read a file of the repository from a line on."""
        return next(results)

    said = LIBRARIES[which](base_url, read, rounds)
    assert said == DONE, said
    assert next(results, None) is None, "a round was left out"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
