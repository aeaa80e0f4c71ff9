"""Budgets in tokens and dollars: when they are exceeded, and what is left of them for inner calls.

The prices that turn tokens into dollars are in `fsm_agent.call.prices`.
"""

from __future__ import annotations

from typing import Any

from fsm_agent._internal.structs import Value
from fsm_agent.call.effects import RunFunction
from fsm_agent.call.limits import Limits, has_budget
from fsm_agent.call.record import CallRecord, State
from fsm_agent.errors import OutcomeError
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import UNUSED, Usage

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
    if limits.cost_usd is not None and more.cost_pico_usd is None and more.total_tokens:
        raise OutcomeError(
            f"the usage of an outcome: expected a cost for its {more.total_tokens} tokens, since"
            f" limits.cost_usd={limits.cost_usd:g} counts it, got none; pass Usage(…, cost_pico_usd=…), or give the"
            " Environment"
            " the price"
        )
    used = record.total_usage + more
    if limits.tokens is not None and used.total_tokens > limits.tokens:
        return "tokens"
    if limits.cost_usd is not None and (used.cost_pico_usd or 0) > round(limits.cost_usd * PICO):
        return "cost_usd"
    return None


def with_budget_left(record: Any, outer: CallRecord) -> Any:
    """Limit the budgets of a new process to what the outer call has left, and return its record."""
    return with_limits_left(record, outer.limits, outer.total_usage) if has_budget(outer.limits) else record


def with_limits_left(record: Any, limits: Limits, used: Usage) -> Any:
    """Limit the budgets of a new process to what the outer process has left, and return its record.

    A process other than an agent call passes the budgets on to its inner calls.
    """
    left = dict[str, Any]()
    if limits.tokens is not None:
        left["tokens"] = max(0, limits.tokens - used.total_tokens)
    if limits.cost_usd is not None:
        left["cost_usd"] = max(0, round(limits.cost_usd * PICO) - (used.cost_pico_usd or 0)) / PICO
    if not isinstance(record, CallRecord):
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
    found = [(step.key, step.usage) for step in record.trace if step.usage and step.source == State.TOOL_INTERRUPT]
    if overrun.call is not None:
        found.append((f"{RunFunction.prefix}:{overrun.call.id}", overrun.usage))
    found += [(key, child.total_usage) for key, child in record.children.items()]
    names = {f"{RunFunction.prefix}:{f.id}": f.name for f in (*record.function_calls, *record.round)}
    return [(f"{names.get(key, 'a function')} ({key})", usage) for key, usage in found if usage != UNUSED]
