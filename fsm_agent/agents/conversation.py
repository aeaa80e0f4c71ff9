"""Conversations in a store: each turn is a run that follows the previous one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from fsm_agent.agents import agent as agents  # the whole module, because it imports this one
from fsm_agent.agents.options import After, Deps, Out
from fsm_agent.agents.stored_runs import attach_journal, definition_of
from fsm_agent.agents.task_messages import dialog_before
from fsm_agent.agents.verbs import CallVerbs
from fsm_agent.call.call import AgentCall
from fsm_agent.call.header import ConversationTurn, seed_of
from fsm_agent.call.journal import Header, Journal, header_of
from fsm_agent.context.fitting import kept
from fsm_agent.context.passes import AnyPass, passes_of
from fsm_agent.errors import JournalError, ReplayError, UsageError
from fsm_agent.functions.context import LATER, Made
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime import drivers
from fsm_agent.runtime.environment import Environment
from fsm_agent.runtime.run_function import InnerCalls
from fsm_agent.store.claiming import Claimed, ProcessFactory, is_told_to_end
from fsm_agent.store.errors import RunBusy, RunUnknown
from fsm_agent.store.rescheduling import stuck_in
from fsm_agent.store.store import Head, Run
from fsm_agent.store.turns import StoredTurn, check_ended, dialog_at, turn_of, turns_back
from fsm_agent.validation import require


class Conversation(CallVerbs[Deps, Out]):
    """A named conversation in an agent's store.

    ``call``, ``acall``, ``stream`` and ``astream`` work as they do on the agent, but each of them adds a turn to the
    dialog so far and saves it.  A turn is one of the agent's runs, so ``runs.resume`` continues it after an
    interruption.  A turn can begin only when the newest turn has ended and no other turn has been added since the
    dialog was read.  If two processes start a turn at once, the second gets a `Conflict` before its model is called.

    A turn that ends without an answer is left out of the dialog, unless functions were called in it.  Its run is kept
    in either case.  See `fsm_agent.store.turns`.

    Args:
        agent: The agent that answers.  Another agent may continue the conversation later.
        name: The conversation's name in the store.
        keep: Passes that choose what each turn inherits from earlier turns, or None for the agent's passes.

    Examples:
        >>> agent = Agent(Script("Hello, Ada.", "Ada."), name="host", store=MemoryStore())
        >>> conversation = agent.conversation("customer-17")
        >>> conversation.call("I am Ada.").output
        'Hello, Ada.'
        >>> conversation.call("Who am I?").output
        'Ada.'
        >>> len(conversation.read().messages)
        4
    """

    _reads_store = True

    def __init__(
        self, agent: agents.Agent[Deps, Out], name: str, keep: AnyPass | Sequence[AnyPass] | None = None
    ) -> None:
        require(
            "the name of a conversation", name, isinstance(name, str) and bool(name), "a string such as 'customer-17'"
        )
        self.agent = agent
        self.name = name
        self.approve = agent.approve
        self.hooks = agent.hooks
        self._keep = passes_of(agent.keep if keep is None else keep, "keep")
        self._runs = self.store = agent.runs.all
        self._known: dict[str, Dialog] = {}  # the dialogs after runs that no longer change

    def __repr__(self) -> str:
        return f"Conversation({self.agent.name!r}, {self.name!r})"

    def read(self) -> Dialog:
        """Return the dialog up to the newest turn that has ended.

        Raises:
            StoreError: If the store failed, or if a run that is needed was deleted.
            JournalError: If the journal of a run that is needed is damaged or forged.
        """
        return self._dialog(self._runs.store.head(self.name))

    async def aread(self) -> Dialog:
        """The async version of `read`."""
        return await asyncio.to_thread(self.read)

    def usage(self) -> Usage:
        """Return the tokens used by all turns that have ended, including turns without an answer.

        `Price.cost_pico_usd` computes their cost.
        """
        head = self._runs.store.head(self.name)
        return turn_of(self._runs.journals, head.run, self.name).usage if head.run else UNUSED

    def turns(self, limit: int | None = None) -> list[Run]:
        """Return the runs, newest first.  The list ends at a deleted run.

        Args:
            limit: The maximum number of runs, or None for all.
        """
        return [run for run, _ in islice(turns_back(self._runs.journals, self.name), limit)]

    def _prepare(self, task: Any, options: Mapping[str, Any]) -> AgentCall[Any]:
        if isinstance(task, Dialog | list | tuple):
            raise UsageError(
                f"the task: expected only the new message, since the conversation {self.name!r} keeps its dialog, got a"
                " whole dialog; pass call('…'), or call('…', after=…) to continue another dialog"
            )
        head = self._runs.store.head(self.name)
        again = self._again(task, options)
        if again is not None:
            return again
        after = options.get("after")
        before, usage = self._before(head, options)
        inherited = kept(self._keep, before)
        call = self.agent._build_call(task, {**options, "after": inherited}, self._keep)
        is_continued = after is None and bool(head.run) and inherited is before and len(before) > 0
        turn = ConversationTurn(self.name, head.version + 1, head.run, 1, is_continued, usage)
        attach_journal(self.agent, call, options, turn)
        return call

    def _prepare_inside(self, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
        raise UsageError(
            f"expected an agent or a flow, which can be part of another call, got the conversation {self.name!r}, whose"
            " runs are its own; use its call(…)"
        )

    def _environment_of(self, process: AgentCall[Any]) -> Environment:
        return self.agent._environment_of(process)

    def _definition(self, options: Mapping[str, Any]) -> ProcessFactory:
        return definition_of(self.agent, options, self._keep)

    def _definition_of(self, process: AgentCall[Any]) -> ProcessFactory:
        options = {"prompt": process.prompt, "deps": Made(process.deps), "model": process.client}
        return definition_of(self.agent, options, self._keep)

    def _fingerprints(self, prompts: Sequence[Any]) -> set[str]:
        return self.agent._fingerprints(prompts)

    def _check_deps(self, deps: Any) -> None:
        self.agent._check_deps(deps)

    def _check_resumed(self, claimed: Claimed) -> Claimed:
        return self.agent._check_resumed(claimed)

    def _dialog(self, head: Head) -> Dialog:
        known = dict(self._known)  # a copy, because other threads may use the conversation
        dialog = dialog_at(self._runs.journals, head.run, self.name, known)
        self._known = known
        return dialog

    def _before(self, head: Head, options: Mapping[str, Any]) -> tuple[Dialog, Usage]:
        """Return the dialog that the next turn continues, and the tokens used so far."""
        after: After = options.get("after")
        usage = UNUSED
        if head.run:
            try:
                newest = turn_of(self._runs.journals, head.run, self.name)
            except RunUnknown:
                if after is None:
                    raise
            else:
                if not newest.row.is_ended:
                    newest = self._end_if_cancelled(newest, options)
                check_ended(newest.row, self.name)
                usage = newest.usage
        if after is not None:
            return dialog_before(after), usage
        return self._dialog(head), usage

    def _end_if_cancelled(self, turn: StoredTurn, options: Mapping[str, Any]) -> StoredTurn:
        """End a turn that was cancelled while it had no driver.  The cancellation is still waiting for one.

        Only the cancellation is handled, so neither the turn's prompt nor its agent's functions are needed.  If this
        agent cannot even rebuild the turn, for example after a handoff, the turn ends as a stuck run does.
        """
        run, deps = turn.row.id, options.get("deps")
        if turn.row.holder is not None or not is_told_to_end(self._runs.store.load(run, after=None)):
            return turn
        is_own = turn.header.agent == self.agent.name
        agent = self.agent if is_own else self.agent.changed(name=turn.header.agent, hooks=())
        prompts = {turn.seed.prompt: Prompt("any", path=turn.seed.prompt)}
        definition = agent._definition_of_run(turn.header, LATER if deps is None else deps, prompts)

        def make(header: Header, *rest: Any) -> AgentCall[Any]:
            # The stand-in prompt is not a change of the turn's prompt, so no change is reported.
            call: AgentCall[Any] = definition.make(header.changed(fingerprint=""), *rest)
            return call

        try:
            process, recorder = self._runs.claims.resume(run, definition._replace(make=make))
            drivers.run(process, agent._environment_of(process), agent._listener_to(process), recorder)
        except RunBusy:
            pass  # the caller looks again
        except (JournalError, ReplayError):
            stuck = turn_of(self._runs.journals, run, self.name)
            if stuck_in(stuck.row) is not None:
                self._runs.cancel(run)
                return self._end_if_cancelled(stuck, options)
        except UsageError:
            if not self._runs.store.get(run).is_ended:  # a stuck run ends even if it cannot be driven here
                raise
        return turn_of(self._runs.journals, run, self.name)

    def _again(self, task: Any, options: Mapping[str, Any]) -> AgentCall[Any] | None:
        """Return the call from the earlier turn with this run id and task, or None if there is no such turn."""
        run = options.get("run_id")
        if not run or not isinstance(run, str):
            return None
        try:
            text = self._runs.store.load(run, after=None).header
        except RunUnknown:
            return None
        header = header_of(text)
        seed = seed_of(header)
        call = self.agent._build_call(task, {**options, "after": None})
        r = call.record
        now = (r.dialog[-1], options.get("args") or {}, options.get("parser_args") or {}, r.extra, r.by, r.model)
        then = (seed.dialog[-1], seed.args, seed.parser_args, header.extra, header.by, seed.model)
        if header.conversation != self.name or now != then:
            return None
        call.journal = Journal(call.record, run, text)
        call.journal.earlier = range(0)
        return call
