"""The limits of one agent call, and the guards that compare a call with them.

The rows that name these guards are in `fsm_agent.call.transition_table`, as is the guard for a loop, `loop_must_stop`.
Budgets in tokens and dollars are in `fsm_agent.call.spending`, and `stop_when` is in `fsm_agent.call.stop_conditions`.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from fsm_agent._internal.structs import Value, is_finite, is_whole
from fsm_agent.messages.message import FunctionCall
from fsm_agent.validation import invalid

if TYPE_CHECKING:
    from fsm_agent.call.outcomes import Begun, FinalReply, FunctionsRequested, HandedOver, ModelFailed
    from fsm_agent.call.record import CallRecord
    from fsm_agent.prompts.prompt import Prompt

OnLimit: TypeAlias = Literal["final_prompt", "stop", "fail"]

OnCut: TypeAlias = Literal["retry", "accept"]

OnLoop: TypeAlias = Literal["stop", "warn", "tell"]

LoopRole: TypeAlias = Literal["user", "system"]


class Limits(Value, frozen=True, kw_only=True):
    """The budgets of one agent call as a whole.  None means unlimited.

    A call makes at most ``1 + rounds + parse_retries + recalls`` requests to a model, plus one if it has two stages or
    a finalizer.  Before each of them, a request for a summary may be needed.

    Args:
        rounds: The maximum number of replies whose functions run; 0 allows no functions.
        on_limit: What happens when the rounds are used up.  ``"final_prompt"`` tells the model to finish, ``"stop"``
            completes the call without an output, and ``"fail"`` makes it fail.
        parse_retries: How many answers the parser or the check may reject before the call fails.
        on_cut: What happens to a plain-text answer that was cut off at the token limit: ``"retry"`` requests it again,
            and ``"accept"`` keeps it as it is.
        recalls: How many failed requests to the model are repeated.
        depth: The number of levels to which agent calls may nest; 1 allows no agent call inside a function.
        handoffs: How many times agents may hand the dialog over before one of them answers.
        tokens: The maximum total number of tokens in all replies, including replies to inner agents.
        cost_usd: The maximum total cost of all replies in dollars, including replies to inner agents.  Each model's
            price must be known or given in ``prices``.
        deadline_s: The maximum time from the call's start to its end, in seconds.
        request_s: The maximum duration of one request to the model, in seconds.  A longer request fails, and may be
            repeated.
        check_s: The maximum duration of one check of an answer, in seconds.  A longer check makes the call fail.
        wait_s: The longest wait before a failed request is repeated, in seconds.  The call ends if a provider requests
            a longer wait.
        identical_rounds: How many rounds in a row with the same function calls count as a loop; 2 or more.
        on_loop: What happens in a loop.  ``"stop"`` ends the call.  ``"warn"`` reports the loop at every multiple of
            `identical_rounds`.  ``"tell"`` does the same, and also tells the model.
        loop_role: The role of the message that tells the model about the loop.
        failures_per_function: The number of failures after which the model is no longer offered a function.
        parallel: The maximum number of functions in one round that run at once; 1 runs them one after another.

    Examples:
        >>> limits = Limits(rounds=8, tokens=20_000, deadline_s=60)
        >>> result = Agent(Script("Hi."), limits=limits).call("Hello")
        >>> result.ending.reason
        <Reason.ANSWERED: 'answered'>
    """

    rounds: int | None = 5
    on_limit: OnLimit = "final_prompt"
    parse_retries: int | None = 3
    on_cut: OnCut = "retry"
    recalls: int | None = 2
    depth: int | None = 3
    handoffs: int | None = 10
    tokens: int | None = None
    cost_usd: float | None = None
    deadline_s: float | None = None
    request_s: float | None = None
    check_s: float | None = None
    wait_s: float | None = 60.0
    identical_rounds: int | None = 3
    on_loop: OnLoop = "tell"
    # Many chat templates refuse a system message that is not the first, and some wires move it there
    # (https://github.com/gptme/gptme/issues/3779, 2026-09-09).
    loop_role: LoopRole = "user"
    failures_per_function: int | None = None
    parallel: int | None = None

    def __post_init__(self) -> None:
        for name, kind in _CHOICES.items():
            choices = get_args(kind)
            if (value := getattr(self, name)) not in choices:
                raise invalid(f"limits.{name}", value, " or ".join(map(repr, choices)))
        for name, (is_right, number) in _NUMBERS.items():
            value, least = getattr(self, name), _LEAST.get(name, 0)
            if value is not None and not (is_right(value) and value >= least):
                raise invalid(f"limits.{name}", value, f"a {number} from {least} on, or None for no limit")


_CHECKS = {"int | None": (is_whole, "whole number"), "float | None": (is_finite, "number")}  # by annotation

_NUMBERS = {name: _CHECKS[kind] for name, kind in get_annotations(Limits).items() if kind in _CHECKS}

_LEAST = {"identical_rounds": 2, "failures_per_function": 1, "parallel": 1}

_CHOICES = {"on_limit": OnLimit, "on_cut": OnCut, "on_loop": OnLoop, "loop_role": LoopRole}


def is_within(used: int, limit: int | None) -> bool:
    """Return whether the limit allows one more use."""
    return limit is None or used < limit


def has_budget(limits: Limits) -> bool:
    """Return whether tokens or their cost are limited."""
    return limits.tokens is not None or limits.cost_usd is not None


# Guards of rows; see `fsm_agent.call.transition_table`


def too_deep(record: CallRecord, event: Begun, prompt: Prompt) -> bool:
    return not is_within(record.depth, record.limits.depth)


def stops_at_limit(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    return record.limits.on_limit == "stop" and at_round_limit(record, event, prompt)


def fails_at_limit(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    return record.limits.on_limit == "fail" and at_round_limit(record, event, prompt)


def at_round_limit(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    """Return whether the round that is closing is the last one allowed."""
    return not rounds_left(record, event, prompt)


def rounds_left(record: CallRecord, event: FunctionsRequested | FunctionCall, prompt: Prompt) -> bool:
    return is_within(record.rounds + 1, record.limits.rounds)


def may_retry(record: CallRecord, event: FinalReply, prompt: Prompt) -> bool:
    return is_within(record.parse_errors, record.limits.parse_retries)


def out_of_handoffs(record: CallRecord, event: FunctionCall | HandedOver, prompt: Prompt) -> bool:
    return isinstance(event, FunctionCall) and not is_within(record.handoffs, record.limits.handoffs)


def may_recall(record: CallRecord, event: ModelFailed, prompt: Prompt) -> bool:
    """Return whether to repeat the failed request: the failure may be temporary, and attempts and time are left."""
    patient = record.limits.wait_s is None or event.delay_s <= record.limits.wait_s
    in_time = record.deadline_s is None or event.at_s + event.delay_s < record.deadline_s
    return event.error.retryable and patient and in_time and is_within(record.recalls, record.limits.recalls)
