"""What does an outcome mean: which trigger is it, and what does the table need to know of it?

A reply is read into exactly one trigger before the table sees it.  The prompt's parser and `stop_when` run
here, once, and are pure by contract.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias

from pydantic_core import from_json

from fsm_agent.errors import ErrorReport, UsageError
from fsm_agent.messages import FunctionCall, Message
from fsm_agent.outcomes import Approved, Denied, ModelFailed, Outcome, Returned
from fsm_agent.prompts import Prompt
from fsm_agent.record import CallRecord
from fsm_agent.replies import Reply, Usage

REPEATED = (
    "The function {name} was already called with these arguments; its result stands above. "
    "Do not call it so again: if you need no other function, give your final answer."
)


class Asked(NamedTuple):
    """A reply that asks for functions: its message with our ids, and its calls, some settled at once."""

    message: Message
    calls: tuple[FunctionCall, ...]


class Spoken(NamedTuple):
    """A reply with an output, or with what is wrong with it."""

    reply: Reply
    output: Any = None
    problem: str = ""


class Stopped(NamedTuple):
    """A reply at which `stop_when` said stop."""

    asked: Asked
    reason: str


class StopContext(NamedTuple):
    """What `stop_when` can see."""

    iteration: int  # replies so far, this one included
    reply: Reply
    usage: Usage  # of all replies, this one included
    function_calls: int  # run before this reply
    last_results: tuple[FunctionCall, ...]  # of the newest round; empty before the first


# A string is the reason.  It comes before the parser: a reply that it stops at has no output.
StopWhen: TypeAlias = Callable[[StopContext], bool | str | None]
Answer: TypeAlias = Asked | Spoken | Stopped | FunctionCall | Outcome


def read(r: CallRecord, call: FunctionCall | None, outcome: Outcome) -> tuple[str, Answer]:
    """The trigger that an outcome other than a reply is, and its answer for the table.

    Args:
        r: Where the call stands.
        call: What the outcome is about, if it is about a function call.
        outcome: What became of an effect.
    """
    match outcome:
        case Approved() if call:
            return "approved", replace(call, needs_approval=False)
        case Denied() if call:
            return "denied", replace(call, error=f"The call was not allowed: {outcome.reason or 'no reason was given'}")
        case Returned() if call and outcome.is_error:
            return "returned", replace(call, error=outcome.text)
        case Returned() if call:
            return "returned", replace(call, result=outcome.text)
    return outcome.kind, outcome


def read_reply(
    r: CallRecord, reply: Reply, prompt: Prompt, stop_when: StopWhen | None, seen: Container[str]
) -> tuple[str, Answer]:
    """The trigger that a model's reply is, and its answer for the table.

    Args:
        r: Where the call stands.
        reply: The reply.
        prompt: The task's.
        stop_when: Says whether a reply ends the call.
        seen: Fingerprints of the calls that succeeded.
    """
    verdict = stop_when(_stop_context(r, reply)) if stop_when else None
    if not (verdict is None or isinstance(verdict, bool | str)):
        raise UsageError(f"stop_when returned {verdict!r}: True, False, None or a reason is right")
    if verdict:
        return "stopped", Stopped(_asked(r, reply, prompt, seen), verdict if isinstance(verdict, str) else "")
    if reply.message.function_calls:
        return "functions_asked", _asked(r, reply, prompt, seen)
    if reply.refusal is not None or reply.finish in ("refusal", "content_filter"):
        return "refused", Spoken(reply, problem=reply.refusal or reply.message.text or f"finish: {reply.finish_raw}")
    if reply.finish == "pause":
        return "paused", Asked(reply.message, ())
    if reply.finish == "error":
        report = ErrorReport(kind="BadReply", message=f"the model broke off: {reply.finish_raw}", retryable=True)
        return "model_failed", ModelFailed(error=report)
    try:
        return "answered", Spoken(reply, prompt.parse(reply.message.text, is_cut=reply.finish == "length"))
    except UsageError:
        raise
    except ValueError as error:
        return "parse_failed", Spoken(reply, problem=str(error) or type(error).__name__)
    except (LookupError, TypeError, AttributeError) as error:  # what the model said is not of the expected shape
        return "parse_failed", Spoken(reply, problem=f"{type(error).__name__}: {error}")


def _stop_context(r: CallRecord, reply: Reply) -> StopContext:
    return StopContext(r.turn + 1, reply, r.usage + reply.usage, len(r.function_calls), r.newest_round)


def _asked(r: CallRecord, reply: Reply, prompt: Prompt, seen: Container[str]) -> Asked:
    """The reply's calls with our ids; repeated, unknown and invalid ones already answered."""
    place, index, parts, calls = len(r.dialog), 0, [], []
    fingerprints: set[str] = set()
    for part in reply.message.parts:
        if isinstance(part, FunctionCall):
            part = replace(part, id=f"{place}.{index}")
            calls.append(_screened(part, reply, prompt, seen, fingerprints))
            index += 1
        parts.append(part)
    return Asked(replace(reply.message, parts=tuple(parts)), tuple(calls))


def _screened(
    call: FunctionCall, reply: Reply, prompt: Prompt, seen: Container[str], in_round: set[str]
) -> FunctionCall:
    function = prompt.by_name.get(call.name)
    if function is None:
        known = ", ".join(prompt.by_name) or "none"
        return replace(call, error=f"There is no function {call.name!r}. There are: {known}.")
    if (problem := function.refusal(call.arguments_json)) is not None:
        if reply.finish == "length":
            problem += "\n(The call was cut off at the token limit.)"
        return replace(call, error=f"The arguments of {call.name} are not valid:\n{problem}")
    mark = fingerprint(call)
    if not function.repeatable and (mark in seen or mark in in_round):
        return replace(call, fingerprint=mark, is_repeated=True, result=REPEATED.format(name=call.name))
    in_round.add(mark)
    return replace(call, fingerprint=mark, needs_approval=function.needs_approval)


def fingerprint(call: FunctionCall) -> str:
    """The same for the same name and arguments, whatever the order of keys; 1, 1.0 and true differ."""
    arguments = from_json(call.arguments_json or "{}")
    canonical = json.dumps([call.name, arguments], sort_keys=True).encode()
    return blake2b(canonical, digest_size=16).hexdigest()
