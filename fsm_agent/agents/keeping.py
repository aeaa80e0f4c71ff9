"""The agent's part in keeping runs: headers for its calls, and calls from headers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.generics import Out
from fsm_agent._internal.lazy_import import deferred
from fsm_agent._internal.values import Value
from fsm_agent.agents.arguments import MODEL, is_model
from fsm_agent.errors import UsageError
from fsm_agent.lifecycle.call import AgentCall
from fsm_agent.lifecycle.seeding import ConversationTurn, call_of, header_of_call, seed_of, turn_snapshot
from fsm_agent.lifecycle.snapshots import check_change
from fsm_agent.machine.journal import Header, Journal, header_of
from fsm_agent.messages.message import Message
from fsm_agent.mistakes import check, plain_json
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.logs.log import LOG

if TYPE_CHECKING:
    import asyncio

    from fsm_agent.agents.agent import Agent
    from fsm_agent.runtime.world import World
    from fsm_agent.store import runs
    from fsm_agent.store.runs import Definition, Held, Runs
else:
    asyncio, runs = deferred("asyncio"), deferred("fsm_agent.store.runs")


class Options(Value, frozen=True):
    """The options of a call, whatever its task."""

    args: Mapping[str, Any] | None = None
    parser_args: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    run_id: str | None = None
    deps: Any = None
    after: Any = None
    system_args: Mapping[str, Any] | None = None
    keep_system: bool = False
    model: Any = None


def runs_of(store: Any) -> Runs:
    """Return the runs that ``Agent.store`` stands for."""
    return store if isinstance(store, runs.Runs) else runs.Runs(store)


def keep(agent: Agent[Any, Any], call: AgentCall[Any], options: Options, turn: ConversationTurn | None = None) -> None:
    """Have a call that has not begun kept in the agent's store, once it is driven.

    Args:
        agent: The agent.
        call: The call.
        options: Its options.
        turn: Its place in a conversation.
    """
    name = options.run_id
    if name is not None and (not isinstance(name, str) or not name):
        raise UsageError(f"run_id is {name!r}: a text such as 'order-17', or None for a new one, would be right")
    call.journal = Journal(call, name or "", header_of_call(call, agent.name, options.args, turn))
    if turn is not None:
        call.journal.earlier = turn.earlier(call.record.dialog) if turn.is_continued else range(0)


def warned_of_change(call: AgentCall[Out]) -> AgentCall[Out]:
    """Return a call, after a warning in the log if its prompt is not the one that it was made with."""
    if call.prompt_change is not None:
        LOG.warning("%s: %s", call, call.prompt_change)
    return call


def check_unchanged(runs: Runs, run: str, definition: Definition) -> None:
    """Refuse a run whose prompt has changed since it began; the run stays as it is, and nobody has claimed it.

    Raises:
        PromptChanged: It has.
        RunUnknown: There is no such run.
    """
    check_change(definition.make(header_of(runs.store.load(run, after=None).header), None), "error")


async def aheld(hold: Callable[[], Held]) -> Held:
    """Return what another thread claims; when this task is cancelled meanwhile, the run is given back there."""
    claim = _Claim(hold)
    try:
        return await asyncio.to_thread(claim.make)
    except asyncio.CancelledError:
        if (held := claim.left()) is not None:
            await asyncio.to_thread(_give_back, held)
        raise


class _Claim:
    """A claim that is made in another thread, and given back if nobody waits for it any more.

    Args:
        hold: Claims the run.
    """

    def __init__(self, hold: Callable[[], Held]) -> None:
        self._hold = hold
        self._lock = threading.Lock()
        self._is_left = False
        self._held: Held | None = None

    def make(self) -> Held:
        """Claim the run, and give it back if that was too late."""
        held = self._hold()
        with self._lock:
            self._held = held
            is_left = self._is_left
        if is_left:
            _give_back(held)
        return held

    def left(self) -> Held | None:
        """Take note that nobody waits any more; return what is claimed already, for the caller to give back."""
        with self._lock:
            self._is_left = True
            return self._held


def _give_back(held: Held) -> None:
    """Give back a run that was claimed, and nobody has driven since."""
    _, recorder = held
    if recorder is not None:
        recorder.finish(is_stopped=True)
        while recorder.is_behind:
            recorder.write()


def definition_of(agent: Agent[Any, Any], prompt: Prompt | None, options: Options) -> Definition:
    """Return the way in which the agent makes the calls of runs.

    Args:
        agent: The agent.
        prompt: The prompt of the run; None: the agent's own.
        options: Those of the call, over those in the header.
    """

    def make(header: Header, document: str | None, earlier: Sequence[Message] = ()) -> AgentCall[Any]:
        if header.agent != agent.name:
            raise UsageError(f"the run is one of the agent {header.agent!r}, and this is {agent.name!r}")
        seed = seed_of(header)
        if seed.prompt != (prompt or agent.prompt).path:
            actual = "the agent's own" if prompt is None else repr(prompt.path)
            raise UsageError(f"the run is of prompt {seed.prompt!r}, and {actual} was given: resume(…, prompt=…)")
        governed = agent._governed_for(prompt, options)
        parts = agent._kept(governed, options.args or seed.args or None, options.deps)
        parts["has_approver"] = parts["has_approver"] or seed.is_attended
        call = warned_of_change(call_of(header, seed, document, governed, earlier, **parts))
        if seed.is_system_own:
            call.system_args = None
        return with_options(agent, call, options)

    world = agent._world_under(options.model)
    return runs.Definition(agent.name, make, turn_snapshot, world.new_id, now=world.clock.now)


def with_options(agent: Agent[Any, Any], call: AgentCall[Any], options: Options) -> AgentCall[Any]:
    """Return a call that nothing drives yet with those of its parser's arguments and the model that are given.

    Raises:
        UsageError: JSON cannot hold something in the arguments, or there is no such model.
    """
    if options.parser_args:
        call.record = call.record.changed(parser_args=plain_json("parser_args", options.parser_args))
    return call if options.model is None else with_model(agent, call, options.model)


def with_model(agent: Agent[Any, Any], call: AgentCall[Any], model: Any) -> AgentCall[Any]:
    """Return a call that nothing drives yet with a model of its own: a name, or a client.

    Raises:
        UsageError: There is no such model, or the agent has a budget in dollars and nobody knows its price.
    """
    check("model of a call", model, is_model(model), MODEL)
    name = model if isinstance(model, str) else model.name
    check("name of the model of a call", name, isinstance(name, str) and bool(name), "a text such as 'house:m1'")
    call.client = agent._client_of(model)
    call.record = call.record.changed(model=name)
    if agent.limits.cost_usd is not None:
        agent._world_of(call).price_list.check()
    return call


def check_askable(world_of: Callable[[AgentCall[Any]], World], held: Held) -> Held:
    """Return a run that was claimed; give it back if its model has to be given again.

    Raises:
        UsageError: The model of the run has a name from which no client can be made here.
    """
    call, recorder = held
    if recorder is None:
        return held
    try:
        world_of(call)
    except UsageError as error:
        recorder.finish(is_stopped=True)
        while recorder.is_behind:
            recorder.write()
        if not call.record.model:
            raise
        raise UsageError(f"the run goes on with the model that it began with: {error}; model=… gives it one") from error
    return held
