"""The agent calls behind the calls of tools: kept in a store, or carried by the client.

A call that waits for an answer has a *state*, a text that its client sends back with the answer.  In a store it is the
name of a run, so only one answer is taken, from any client.  Without a store it is the call itself.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from fsm_agent.agents.agent import Agent
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import snapshot
from fsm_agent.errors import CallFailed, CallSuspended, FsmAgentError
from fsm_agent.mcp.serving.progress import Progress
from fsm_agent.store.errors import StoreError

CANCELLED = "cancelled by the client"
CANCEL_TIMEOUT_S = 5.0  # for a call to end by itself after its cancellation
MAX_STATE_CHARS = 1_000_000


async def driven(result: Awaitable[CallResult[Any]]) -> AgentCall[Any]:
    """Return the call of a result that is awaited, however it ended, and also if it waits."""
    try:
        return (await result).call
    except (CallFailed, CallSuspended) as error:
        return error.call


class Calls(ABC):
    """Begins and continues the calls of an agent.

    Args:
        agent: The agent.
        deps: What functions find in their `Context`.
    """

    def __init__(self, agent: Agent[Any, Any], deps: Any) -> None:
        self._agent = agent
        self._deps = deps

    @abstractmethod
    def new_name(self) -> str:
        """Return a name for a call that begins."""

    @abstractmethod
    async def begin(self, name: str, task: str, user: str, progress: Progress) -> AgentCall[Any]:
        """Drive a new call until it ends or waits."""

    @abstractmethod
    async def at(self, state: str) -> AgentCall[Any]:
        """Return a call that waits.

        Raises:
            FsmAgentError: There is none, or its state cannot be read.
        """

    @abstractmethod
    async def go_on(
        self, call: AgentCall[Any], state: str, answers: Mapping[str, Outcome], by: str, progress: Progress
    ) -> AgentCall[Any]:
        """Answer a call that waits, and drive it until it ends or waits again.

        Args:
            call: The call.
            state: Its state.
            answers: Outcomes by the keys of its questions; none: it continues after a crash, say.
            by: Who answers, for people.
            progress: Hears its events.

        Raises:
            FsmAgentError: The answers were not taken.
        """

    @abstractmethod
    def state_of(self, name: str, call: AgentCall[Any]) -> str:
        """Return the state of a call that waits; empty: it is too large to be carried."""

    @abstractmethod
    async def cancel(self, name: str, by: str) -> None:
        """Cancel the call of this name, also while it is driven; it may have ended."""


class StoredCalls(Calls):
    """Calls whose runs are in the agent's store."""

    def new_name(self) -> str:
        """Return a name that cannot be guessed."""
        return f"{self._agent.name}-{secrets.token_hex(16)}"

    async def begin(self, name: str, task: str, user: str, progress: Progress) -> AgentCall[Any]:
        call = await asyncio.to_thread(partial(self._agent.seed, task, deps=self._deps, by=user, run_id=name))
        return await driven(self._agent.arun(call, progress.hear))

    async def at(self, state: str) -> AgentCall[Any]:
        definition = self._agent.definition(deps=self._deps)
        call: AgentCall[Any] = await asyncio.to_thread(self._agent.runs.look_at, state, definition)
        return call

    async def go_on(
        self, call: AgentCall[Any], state: str, answers: Mapping[str, Outcome], by: str, progress: Progress
    ) -> AgentCall[Any]:
        return await driven(self._agent.aresume(state, answers or None, by=by, deps=self._deps, sink=progress.hear))

    def state_of(self, name: str, call: AgentCall[Any]) -> str:
        return name

    async def cancel(self, name: str, by: str) -> None:
        with suppress(StoreError):  # it was not begun, or has ended
            await asyncio.to_thread(partial(self._agent.runs.cancel, name, CANCELLED, by=by))
            with suppress(FsmAgentError):  # it ends as cancelled, or its driver ends it
                await self._agent.aresume(name, deps=self._deps)


class CarriedCalls(Calls):
    """Calls in no store: the client carries those that wait."""

    def new_name(self) -> str:
        return ""

    async def begin(self, name: str, task: str, user: str, progress: Progress) -> AgentCall[Any]:
        call = await asyncio.to_thread(partial(self._agent.seed, task, deps=self._deps, by=user))
        return await driven(self._agent.arun(call, progress.hear))

    async def at(self, state: str) -> AgentCall[Any]:
        return self._agent.restore(state, deps=self._deps)

    async def go_on(
        self, call: AgentCall[Any], state: str, answers: Mapping[str, Outcome], by: str, progress: Progress
    ) -> AgentCall[Any]:
        for key, outcome in answers.items():
            call.advance(key, outcome)
        return await driven(self._agent.arun(call, progress.hear))

    def state_of(self, name: str, call: AgentCall[Any]) -> str:
        document = snapshot(call)
        return document if len(document) <= MAX_STATE_CHARS else ""

    async def cancel(self, name: str, by: str) -> None:
        """Do nothing: a call that is driven ends with its driver, and the client drops any other."""


async def undisturbed(work: Awaitable[AgentCall[Any]], calls: Calls, name: str, by: str) -> AgentCall[Any]:
    """Await the driver of a call; if this task is cancelled, cancel the call as well, and wait for its end.

    The driver has a task of its own: a cancellation by anyio repeats at each await, and would disturb the driver as it
    gives the run back.

    Args:
        work: Drives the call.
        calls: Whose call it is.
        name: The name of the call.
        by: Who cancels it, for people.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        await _shielded(_cancelled(task, calls, name, by))
        raise
    return task.result()


async def _cancelled(task: asyncio.Future[Any], calls: Calls, name: str, by: str) -> None:
    if name:
        await calls.cancel(name, by)
        await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_S)
    task.cancel()
    await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_S)
    if task.done() and not task.cancelled():
        task.exception()  # else it would be logged as never looked at
    if name:
        await calls.cancel(name, by)


async def _shielded(work: Awaitable[None]) -> None:
    with anyio.CancelScope(shield=True):
        await asyncio.ensure_future(work)


async def cancelled_at_rest(calls: Calls, name: str, by: str) -> None:
    """Cancel a call that is not driven, also in a task that was cancelled."""
    await _shielded(calls.cancel(name, by))
