"""Decide which functions may be called now, and which calls of a round may be run.

All of it follows from the record and the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from fsm_agent.call.limits import Limits, is_within
from fsm_agent.call.record import CallRecord, Tally
from fsm_agent.errors import Retry
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall
from fsm_agent.prompts.prompt import Prompt

USED_UP = "{name} may be called {limit} time(s), and that is used up."
_NEVER = Tally()


def offered(record: CallRecord, prompt: Prompt) -> tuple[Function, ...]:
    """Return the functions that the model may call: those of the prompt that are not used up."""
    if not record.tallies:
        return prompt.offers
    return tuple([f for f in prompt.offers if used_up(record, f) is None])


def used_up(record: CallRecord, function: Function) -> str | None:
    """Return why a function is no longer offered, as text for the model; None while it is."""
    tally = record.tallies.get(function.name, _NEVER)
    if not is_within(tally.runs, function.max_calls):
        return USED_UP.format(name=function.name, limit=function.max_calls)
    failures = record.limits.failures_per_function if function.max_failures is None else function.max_failures
    if not is_within(tally.failures, failures):
        return f"{function.name} has failed {tally.failures} time(s) and is no longer available. Go on without it."
    return None


def is_final(record: CallRecord, prompt: Prompt) -> bool:
    """Return whether the model has to answer now: the rounds or all functions are used up, or the draft is done."""
    limit = record.limits.rounds
    if record.is_drafted or (limit is not None and record.rounds >= limit):
        return True
    if not record.tallies:
        return False
    return bool(prompt.offers) and not offered(record, prompt)


def has_to_finish(record: CallRecord, prompt: Prompt) -> bool:
    """Return whether a request ends with the final prompt: the functions were withdrawn after a round."""
    # A paused reply ends the dialog with the assistant's message: the model continues it, and is asked for nothing.
    is_behind_results = bool(record.function_calls) and record.dialog[len(record.dialog) - 1].role != "assistant"
    return is_behind_results and not record.is_drafted and is_final(record, prompt)


def rounds_used_up(limits: Limits) -> str:
    """Return the text for a reached limit of rounds, for people."""
    return f"limits.rounds={limits.rounds} is used up"


def drafts(record: CallRecord, prompt: Prompt) -> bool:
    """Return whether an answer is only the first of two: another request, without functions, makes the final one."""
    if prompt.finalizer is not None:
        return not record.is_drafted
    return prompt.mode == "two_stage" and bool(prompt.offers) and not is_final(record, prompt)


def governing_prompt(record: CallRecord, prompt: Prompt, *, in_branch: bool) -> Prompt:
    """Return the prompt that the next request is made with, and its answer parsed with.

    Args:
        record: The record of the call.
        prompt: The task's prompt.
        in_branch: Whether the request belongs to the exception branch.
    """
    if prompt.finalizer is None:
        return prompt.prompt_for_request(is_final=is_final(record, prompt), in_branch=in_branch)
    if not record.is_drafted:
        return prompt.final_handler if is_final(record, prompt) else prompt
    return prompt.finalizing.prompt_for_request(is_final=False, in_branch=in_branch)


def tallied(record: CallRecord, calls: Iterable[FunctionCall], prompt: Prompt) -> Mapping[str, Tally]:
    """Return the tallies after these settled calls."""
    if not prompt.tallied and record.limits.failures_per_function is None:
        return record.tallies
    tallies = dict(record.tallies)
    for f in calls:
        if f.was_run and (record.limits.failures_per_function is not None or f.name in prompt.tallied):
            was = tallies.get(f.name, _NEVER)
            tallies[f.name] = Tally(was.successes + (f.error is None), was.failures + (f.error is not None))
    return tallies


def unblocked(record: CallRecord, calls: Sequence[FunctionCall], prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return a round's calls; a call that depends on a function that cannot succeed any more gets an error."""
    if not prompt.depended_on:
        return calls if isinstance(calls, tuple) else tuple(calls)
    done, waits = list(calls), True
    while waits:  # each pass but the last settles a call, which may block others
        hopeful = {f.name for f in done if f.succeeded or not f.is_settled}
        hopeful |= {name for name, tally in record.tallies.items() if tally.successes}
        waits = False
        for i, f in enumerate(done):
            if not f.is_settled and (missing := [name for name in _needs(f, prompt) if name not in hopeful]):
                error = f"{f.name} requires {' and '.join(missing)} to have succeeded first."
                done[i], waits = f.changed(error=error), True
    return tuple(done)


@lru_cache(maxsize=64)
def gone(name: str) -> Function:
    """Return a stand-in for a function that was requested and then removed; it returns an error to the model."""

    def call(**arguments: Any) -> str:
        raise Retry(f"The function {name!r} is no longer available. Go on without it.")

    return Function(name=name, parameters={}, call=call)


def ready(record: CallRecord, pending: tuple[FunctionCall, ...], prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return the pending calls of the round that may be run now, in the order requested."""
    if prompt.handoffs:  # a handoff comes after all other calls
        pending = tuple([f for f in pending if f.name not in prompt.handoffs]) or pending
    if prompt.depended_on:
        unsettled = {f.name for f in pending}
        pending = tuple([f for f in pending if unsettled.isdisjoint(_needs(f, prompt))])
    if prompt.in_order:
        first = {f.name: f for f in reversed(pending)}
        pending = tuple([f for f in pending if f.name not in prompt.in_order or first[f.name] is f])
    return pending if record.limits.parallel is None else pending[: record.limits.parallel]


def _needs(f: FunctionCall, prompt: Prompt) -> Sequence[str]:
    function = prompt.by_name.get(f.name)
    return function.depends_on if function else ()
