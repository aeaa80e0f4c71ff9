"""The limits of one agent call, the guards that compare a call with them, and what is left of its budgets.

The rows that name these guards are in `fsm_agent.call.transition_table`, as is the guard for a loop, `loop_must_stop`.
`stop_when` is in `fsm_agent.call.stop_conditions`, and the prices of tokens are in `fsm_agent.call.prices`.
"""

from __future__ import annotations

from inspect import get_annotations
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from fsm_agent._internal.structs import Value, is_finite, is_whole
from fsm_agent.errors import OutcomeError
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import UNUSED, Usage
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


# Budgets in tokens and dollars

PICO = 10**12  # pico-dollars in a dollar

_MOST_NAMED = 5  # inner calls that the text of an ending names


OVER_BUDGET = "OverBudget"  # the kind of the report of a request that is not sent, since a retry left no budget for it


class Overrun(Value, frozen=True, kw_only=True):
    """An outcome that exceeds a budget."""

    usage: Usage = UNUSED  # of this outcome
    call: FunctionCall | None = None  # the function call whose outcome it is
    at_s: float = 0.0


def exceeded(record: CallRecord, more: Usage = UNUSED) -> str | None:
    """Return the name of the limit that the call exceeds with these additional tokens, or None if it exceeds none.

    Raises:
        OutcomeError: If the cost is limited, and the cost of these tokens is unknown.
    """
    limits = record.limits
    if limits.tokens is None and limits.cost_usd is None:
        return None
    if limits.cost_usd is not None and more.cost_pico_usd is None and more.total_tokens:
        raise OutcomeError(
            f"the usage of an outcome: expected a cost for its {more.total_tokens} tokens, since"
            f" limits.cost_usd={limits.cost_usd:g} counts it, got none; pass Usage(…, cost_pico_usd=…), or give the"
            " Environment the price"
        )
    used = record.total_usage + more
    if limits.tokens is not None and used.total_tokens > limits.tokens:
        return "tokens"
    if limits.cost_usd is not None and (used.cost_pico_usd or 0) > round(limits.cost_usd * PICO):
        return "cost_usd"
    return None


def with_limits_left(record: Any, limits: Limits, used: Usage) -> Any:
    """Limit the budgets of a new process to what the outer process has left, and return its record.

    A process other than an agent call passes the budgets on to its inner calls.
    """
    left = dict[str, Any]()
    if limits.tokens is not None:
        left["tokens"] = max(0, limits.tokens - used.total_tokens)
    if limits.cost_usd is not None:
        left["cost_usd"] = max(0, round(limits.cost_usd * PICO) - (used.cost_pico_usd or 0)) / PICO
    if not left:
        return record
    if not isinstance(getattr(record, "limits", None), Limits):
        return record.changed(budget_left=Limits(**left))
    own = {name: getattr(record.limits, name) for name in left}
    outer = {name: most for name, most in left.items() if own[name] is None or most < own[name]}
    return record.changed(limits=record.limits.changed(**outer), outer_limits=tuple(outer))


def reached(record: CallRecord, overrun: Overrun) -> tuple[str, float]:
    """Return `(name, used)`: the name of the exceeded budget, and the tokens or dollars that were used."""
    name, used = exceeded(record, overrun.usage) or "tokens", record.total_usage + overrun.usage
    return name, used.total_tokens if name == "tokens" else (used.cost_pico_usd or 0) / PICO


def describe_overrun(record: CallRecord, overrun: Overrun) -> str:
    """Describe which budget was exceeded, what was used, and how much each inner call used."""
    name = reached(record, overrun)[0]
    limit = str(record.limits.tokens) if name == "tokens" else _dollars(round((record.limits.cost_usd or 0) * PICO))
    whose = ", all that the call around this one had left" if name in record.outer_limits else ""
    text = f"limits.{name} is {limit}{whose}, and {_spent(name, record.total_usage + overrun.usage)} were used"
    inside = _inside(record, overrun)
    named = [f"{_spent(name, usage)} by {who}" for who, usage in inside[:_MOST_NAMED]]
    if len(inside) > _MOST_NAMED:
        named.append(f"the rest by {len(inside) - _MOST_NAMED} more calls")
    return f"{text}: {', '.join(named)}" if named else text


def _spent(name: str, usage: Usage) -> str:
    return f"{usage.total_tokens} tokens" if name == "tokens" else _dollars(usage.cost_pico_usd or 0)


def _dollars(pico_usd: int) -> str:
    return f"${pico_usd // PICO}.{pico_usd % PICO:012d}".rstrip("0").rstrip(".")


def _inside(record: CallRecord, overrun: Overrun) -> list[tuple[str, Usage]]:
    found = [*record.usage_inside.items()]
    if overrun.call is not None:
        found.append((f"run:{overrun.call.id}", overrun.usage))
    names = {f"run:{f.id}": f.name for f in (*record.function_calls, *record.round)}
    return [(f"{names.get(key, 'a function')} ({key})", usage) for key, usage in found if usage != UNUSED]
