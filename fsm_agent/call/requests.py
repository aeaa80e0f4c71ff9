"""The effects that an agent call waits for in each state, and the request to its model.

They are computed for a call and a record, which need not be the call's present one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fsm_agent.call.effects import (
    TEXT,
    AskApproval,
    AskSummary,
    Begin,
    CallModel,
    CheckOutput,
    Effect,
    FindOut,
    Request,
    RunFunction,
    Sleep,
    StartFunction,
)
from fsm_agent.call.function_limits import drafts, gone, governing_prompt, has_to_finish, is_final, offered, ready
from fsm_agent.call.record import ASKING, CallRecord, ContextUse, OnceRun, State
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted_calls import declared
from fsm_agent.messages.events import Event
from fsm_agent.messages.hosted_tools import merged
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import MissingPrompt, Prompt


class Shown(Protocol):
    """What one request shows of a dialog; see `fsm_agent.context.view`."""

    @property
    def request(self) -> Request:
        """The request."""

    @property
    def summary(self) -> AskSummary | None:
        """The summary that is asked for first."""

    @property
    def refusal(self) -> Any:
        """Why the request must not be sent."""


class View(Protocol):
    """The choice of what requests show of a dialog; `fsm_agent.context.view` has the one."""

    @property
    def plan(self) -> Any:
        """What it is made of."""

    warning: str

    def news(self) -> Sequence[Event]:
        """Return what observers are told of the last request."""

    def is_idle(self, record: CallRecord) -> bool:
        """Return whether the next request surely shows the whole dialog."""

    def show(self, record: CallRecord, request: Request, extra: Sequence[Message]) -> Shown:
        """Return what a request shows."""

    def tightened(self, record: CallRecord, request: Request) -> int | None:
        """Return the tokens that a request may have after one that was too long."""

    def use(self, record: CallRecord) -> ContextUse | None:
        """Return what the last request showed."""

    def hides(self, record: CallRecord, id: str) -> bool:
        """Return whether the last request hid the result of a function call."""


class Asking(Protocol):
    """What a request is made of, besides a record: an `AgentCall`."""

    @property
    def prompt(self) -> Prompt[Any]:
        """The task's prompt."""

    @property
    def settings(self) -> Settings:
        """Options of the request."""

    @property
    def args(self) -> Mapping[str, Any]:
        """Options for this call only."""

    @property
    def view(self) -> View | None:
        """Selects the part of the dialog that the model sees."""


_BEGINNING = (Begin("begin"),)
_NOT_BEGUN = OnceRun(attempt=0, phase="cleared")


def effects_of(call: Asking, record: CallRecord) -> tuple[Effect, ...]:
    """Return the effects of the call itself in a record, without those of agents inside."""
    wanted = _WANTED.get(record.state)
    return () if wanted is None else wanted(call, record)


def effects_left(call: Asking, record: CallRecord, effects: tuple[Effect, ...], key: str) -> tuple[Effect, ...] | None:
    """Return a round's effects without that of ``key``; None: compute them again, since others may start now."""
    prompt = call.prompt
    if prompt.depended_on or prompt.handoffs or prompt.in_order or record.limits.parallel is not None:
        return None
    for i, effect in enumerate(effects):
        if effect.key == key:
            return effects[:i] + effects[i + 1 :]
    return effects


def _beginning(call: Asking, record: CallRecord) -> tuple[Effect, ...]:
    return _BEGINNING


def _reply(call: Asking, record: CallRecord) -> tuple[Effect, ...]:
    request, refusal = _request(call, record), None
    view = call.view
    if view is not None and not view.is_idle(record):
        shown = view.show(record, request, request.messages[len(record.dialog) :])
        if shown.summary is not None:
            return (shown.summary,)
        request, refusal = shown.request, shown.refusal
    return (CallModel(f"model:{record.turn}", request, record.attempt, record.limits.cost_usd is not None, refusal),)


def _nap(call: Asking, record: CallRecord) -> tuple[Effect, ...]:
    return (Sleep(f"sleep:{record.turn}", record.wake_at_s),)


def _verdict(call: Asking, record: CallRecord) -> tuple[Effect, ...]:
    return (CheckOutput(f"check:{record.turn}"),)


def _round(call: Asking, record: CallRecord) -> tuple[Effect, ...]:
    """Return the effects of a round: first the approvals of its function calls, then their runs."""
    pending = record.pending
    if asked := [f for f in pending if f.needs_approval]:
        known = {} if isinstance(call.prompt, MissingPrompt) else call.prompt.by_name
        return tuple([AskApproval(f"ask:{f.id}", f, known.get(f.name)) for f in asked])
    named = call.prompt.by_name
    wanted: list[Effect] = []
    for f in ready(record, pending, call.prompt):
        function = named.get(f.name) or gone(f.name)
        if function.call is not None and (function.once or f.id in record.once):
            wanted.append(_once(record, f, function))
        else:
            wanted.append(RunFunction(f"run:{f.id}", f, function))
    return tuple(wanted)


def _once(record: CallRecord, f: FunctionCall, function: Function) -> Effect:
    """Return the effect of a function that must not run twice."""
    run = record.once.get(f.id, _NOT_BEGUN)
    attempt = run.attempt + 1 if run.phase == "cleared" else run.attempt
    name = f.id if attempt == 1 else f"{f.id}:{attempt}"
    if run.phase == "cleared":
        return StartFunction(f"start:{name}", f)
    if run.phase == "doubtful":
        return FindOut(f"doubt:{name}", f, function, f"{record.id}/{f.id}")
    return RunFunction(f"run:{name}", f, function, is_once=True)


def _request(call: Asking, record: CallRecord) -> Request:
    """Return the next request to the model."""
    prompt, settings = call.prompt, call.settings
    functions: tuple[Function, ...] = ()
    is_last = is_final(record, prompt)
    if is_last or record.branch:
        prompt = governing_prompt(record, prompt, in_branch=bool(record.branch))
    if is_last or prompt.settings or prompt.hosted_tools or call.args:
        settings = _settings(call, prompt, is_last)
    if not is_last and settings.tool_choice != "none":
        functions = offered(record, prompt)
        if settings.hosted_tools:
            functions = declared(functions, settings.hosted_tools)
    messages: Sequence[Message] = record.dialog
    if is_last and has_to_finish(record, call.prompt):  # in the request only: it is no part of the dialog
        messages = (*messages, Message.of("user", call.prompt.handler_text("final", rounds=record.rounds)))
    output, mode = prompt.expected, prompt.mode
    if mode is not None or call.prompt.finalizer is not None:
        output = TEXT if drafts(record, call.prompt) else output
        mode = None if mode == "two_stage" else mode
    return Request(
        messages=(*messages, *record.branch) if record.branch else messages,
        functions=functions,
        # A forced choice holds for the first request only; otherwise the model could never answer.
        tool_choice="auto" if record.rounds or not functions else settings.tool_choice,
        output=output,
        mode=mode,
        settings=settings,
        branch_length=len(record.branch) if record.branch else 0,
    )


def _settings(call: Asking, prompt: Prompt, is_last: bool) -> Settings:
    """Return the settings of a request with this prompt."""
    settings = call.settings
    if prompt.settings or call.args:
        settings = settings.override({**prompt.settings, **call.args})
    if is_last:
        return settings.override({"hosted_tools": ()}) if settings.hosted_tools else settings
    if prompt.hosted_tools:
        return settings.override({"hosted_tools": merged(settings.hosted_tools, prompt.hosted_tools)})
    return settings


_WANTED: Mapping[State, Callable[[Asking, CallRecord], tuple[Effect, ...]]] = {
    State.SEEDED: _beginning,
    **dict.fromkeys(ASKING, _reply),
    State.TOOL_INTERRUPT: _round,
    State.BACKOFF: _nap,
    State.CHECKING: _verdict,
}
