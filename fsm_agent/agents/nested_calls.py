"""Calls that functions make with `Context.call`.  Each of them is a child of the call whose function makes it.

The journal of the outer call contains only the function's outcome and the tokens used.  If the outer call is in a
store, each nested call is a separate run there, named after the function call and a number.  A function that runs again
after a crash makes the same calls, and therefore finds their runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.structs import from_json, to_json
from fsm_agent.call.call import CALL_PARTS, AgentCall
from fsm_agent.call.journal import Header, header_of
from fsm_agent.errors import FsmAgentError, UsageError
from fsm_agent.runtime.drivers import LEFT, arun, run
from fsm_agent.runtime.environment import Environment, SystemClock
from fsm_agent.runtime.portal import Aborted
from fsm_agent.runtime.run_function import InnerCalls, is_in_doubt
from fsm_agent.store import errors
from fsm_agent.store.claiming import Claimed, ProcessFactory, aclaim
from fsm_agent.store.runs import Runs

if TYPE_CHECKING:
    from fsm_agent.agents.runnable import Runnable

BUSY_S = 0.1  # between two attempts to claim a run that another process drives

WAITING = "a function cannot wait for a person"

_SHARED = ("limits", "approve")  # what a run takes from the outer call, which may change

_SHARED_FIELDS = {"limits": None, "is_attended": None, "budget_left": None}  # the same, as fields of its seed


def inner_call(call: AgentCall[Any], around: InnerCalls) -> AgentCall[Any]:
    """Return a new call as an inner call, with the limits and the approver of the outer call."""
    call.record = around.inner_record(call.record)
    if call.has_approver or not around.has_approver:
        return call
    parts = {name: getattr(call, name) for name in CALL_PARTS}
    made = type(call)(call.record, call.prompt, **{**parts, "has_approver": True})
    made.client, made.system_args = call.client, call.system_args
    return made


class _Inside:
    """A process that a function starts, together with its run in a store."""

    def __init__(self, runnable: Runnable, task: Any, options: Mapping[str, Any], around: InnerCalls) -> None:
        self._runnable = runnable
        self._around = around
        self._process = runnable._prepare_inside(task, options, around)
        self._is_named = options.get("run_id") is not None
        self._is_renamed = False
        self._numbers = count(2)
        journal = self._process.journal
        self._name = "" if journal is None else journal.run
        self._runs: Runs | None = None
        if around.recorder is not None:
            self._runs = _runs_beside(around.recorder)
        elif journal is not None and journal.header:
            self._runs = runnable.runs.all

    @property
    def is_on_disk(self) -> bool:
        return self._runs is not None and not self._runs.store.is_volatile

    def may_rest(self) -> bool:
        """Return whether the process may stay unfinished when its function is abandoned."""
        return self._around.recorder is not None and self._around.may_rest

    def claim(self) -> Claimed:
        """Return the process and its recorder.  If the function has run before, both are those of the stored run.

        If the stored run has another task or was cancelled together with its function, a new run gets another name.
        """
        if self._runs is None:
            return self._process, None
        while True:
            try:
                claimed = self._runs.claims.begin(self._process, self._definition)
            except errors.RunExists:
                if self._is_named or self._is_renamed or self._around.recorder is None:
                    raise
                self._is_renamed = True
                self._name = self._process.journal.run = f"{self._name}-{_digest(self._process.journal.header)}"
                continue
            if self._around.recorder is None or not _was_left(claimed[0]):
                return self._pass_answers(self._runnable._check_resumed(claimed))
            self._process.journal.run = f"{self._name}-{next(self._numbers)}"

    def _pass_answers(self, claimed: Claimed) -> Claimed:
        """Pass on to a run the answers that the outer run received for it."""
        recorder = claimed[1]
        if self._around.asks_for_them and recorder is not None:
            recorder.is_asked_outside = True
            recorder.take_over(self._around.posts_for(recorder.run))
        return claimed

    def check_rested(self, process: Any, recorder: Any) -> FsmAgentError | None:
        """Return the error for a process that waits although its function cannot wait, or None if it has ended.

        Raises:
            Aborted: If it is unknown whether a function ran.  The process is then kept, and the outer function waits
                for the answer.
            UsageError: If this is unknown, but there is no store to keep the process.
        """
        suspended = _suspension(process)
        if suspended is None or recorder is None or not is_in_doubt(process):
            return suspended
        if self._around.recorder is None:
            raise _no_wait(suspended) from suspended
        self._around.wait_for(process, recorder.run)
        raise Aborted

    def reclaim(self, process: Any) -> Claimed:
        """Return a process and its recorder, to drive it again."""
        return (process, None) if self._runs is None else self._runs.claims.begin(process, self._definition)

    @property
    def _definition(self) -> ProcessFactory:
        made = self._runnable._definition_of(self._process)

        def differences(one: Header, other: Header) -> list[str]:
            return [name for name in made.differences(one, other) if name not in _SHARED]

        return made._replace(differences=differences)

    def environment_of(self, process: Any) -> Environment:
        """Return the process's environment with the outer call's clock.

        If the environment has no approver, it gets the outer call's.
        """
        environment, outer = self._runnable._environment_of(process), self._around.environment
        return environment.changed(clock=outer.clock, approve=environment.approve or outer.approve)


def call_inside(runnable: Runnable, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
    """Make a process, drive it in this thread, and return its result.

    Raises:
        UsageError: If the process waits for a person.
        Aborted: If it is unknown whether an inner function that must not run twice has run.
    """
    around.check()
    one = _Inside(runnable, task, options, around)
    while True:
        try:
            process, recorder = one.claim()
            break
        except errors.RunBusy:  # a worker drives it, or its last driver has not released it yet
            SystemClock().sleep(BUSY_S)
            around.check()
    around.add(process)
    environment, listener = one.environment_of(process), runnable._listener_to(process)
    run(process, environment, listener, recorder, is_shared=False, may_rest=one.may_rest)
    if (suspended := one.check_rested(process, recorder)) is not None:
        while process.effects:  # a flow may continue after the first cancellation, and wait again
            process.cancel(WAITING)
            process, recorder = one.reclaim(process)
            run(process, environment, listener, recorder, is_shared=False)
        raise _no_wait(suspended) from suspended
    return process.result()


async def acall_inside(runnable: Runnable, task: Any, options: Mapping[str, Any], around: InnerCalls) -> Any:
    """The async version of `call_inside`."""
    around.check()
    one = _Inside(runnable, task, options, around)
    while True:
        try:
            process, recorder = await aclaim(one.claim) if one.is_on_disk else one.claim()
            break
        except errors.RunBusy:
            await asyncio.sleep(BUSY_S)
    around.add(process)
    environment, listener = one.environment_of(process), runnable._listener_to(process)
    driving = arun(process, environment, listener, recorder)
    await (driving if recorder is None else _until_left(asyncio.ensure_future(driving), process, one))
    if (suspended := one.check_rested(process, recorder)) is not None:
        while process.effects:
            process.cancel(WAITING)
            reclaim = partial(one.reclaim, process)
            process, recorder = await aclaim(reclaim) if one.is_on_disk else reclaim()
            await arun(process, environment, listener, recorder)
        raise _no_wait(suspended) from suspended
    return process.result()


async def _until_left(driving: asyncio.Future[Any], process: Any, one: _Inside) -> None:
    """Wait until a stored process has been driven.  On cancellation, stop its driver, or let the driver end the run."""
    try:
        await asyncio.shield(driving)
    except asyncio.CancelledError:
        if one.may_rest():
            driving.cancel()
        else:
            process.cancel(LEFT)
        await asyncio.wait([driving])
        raise


def _runs_beside(recorder: Any) -> Runs:
    """Return the runs in a recorder's store, opened with the recorder's options."""
    key, redact, lease_s = recorder.signing_key, recorder.redact, recorder.lease_s
    return Runs(recorder.store, signing_key=key, redact=redact, lease_s=lease_s)


def _digest(header: str) -> str:
    h = header_of(header)
    seed = {**from_json(bytes(h.seed), Any), **_SHARED_FIELDS}
    return sha256(to_json([h.agent, seed, h.extra]).encode()).hexdigest()[:8]


def _was_left(process: Any) -> bool:
    ending = process.record.ending
    return ending is not None and ending.detail == LEFT


def _suspension(process: Any) -> FsmAgentError | None:
    """Return the error that says what a process waits for, or None if it has ended."""
    if process.effects:
        try:
            process.result()
        except FsmAgentError as error:
            return error
    return None


def _no_wait(suspended: FsmAgentError) -> UsageError:
    return UsageError(
        f"{suspended}: a function cannot wait for a person; pass the agent itself, as functions=[agent.as_function()]"
    )
