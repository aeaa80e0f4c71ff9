"""Conditions that end a call before the model is done.

Each function here makes a `stop_when`, which `fsm_agent.call.triggers` calls on every reply, before its functions run.
Limits are in `fsm_agent.call.limits`.  The guard `loop_must_stop` in `fsm_agent.call.transition_table` stops loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pydantic_core import from_json

from fsm_agent._internal.structs import Value, is_amount
from fsm_agent.call.prices import Tariff
from fsm_agent.messages.message import FunctionCall, object_text
from fsm_agent.messages.reply import Reply, Usage
from fsm_agent.validation import require


class Stop(Value, frozen=True):
    """A decision by `stop_when` to end the call, with the reason and an optional output.

    Examples:
        >>> @function
        ... def look() -> str:
        ...     "Look."
        ...     return "found"
        >>> def enough(context):
        ...     return Stop("seen enough", output_json='"found"')
        >>> Agent(Script(function_call("look")), functions=[look], stop_when=enough).call("Look.").output
        'found'
    """

    reason: str = ""
    output_json: str | None = None


class StopContext(Value, frozen=True):
    """The value that is passed to `stop_when`.

    Examples:
        >>> def after_two(context):
        ...     return context.iteration >= 2
        >>> Agent(Script("Hi."), stop_when=after_two).call("Hello").output
        'Hi.'
    """

    iteration: int  # the number of replies so far, including this one; failed requests do not count
    reply: Reply
    usage: Usage  # the usage of all replies, including this one
    function_calls: int  # the number of function calls that ran before this reply
    last_results: tuple[FunctionCall, ...]  # the calls in the newest round; empty before the first round
    runnable: int = 0  # the number of this reply's function calls that would run


# A string is the reason.  `stop_when` runs before the parser, so a reply at which it stops has no parsed output.
StopWhen: TypeAlias = Callable[[StopContext], bool | str | Stop | None]


def stop_on(name: str) -> StopWhen:
    """Stop when the model calls the function with this name.  The arguments become the call's output.

    Arguments that are not a JSON object do not stop the call: the model gets an error and may try again.

    Examples:
        >>> @function
        ... def report(text: str) -> str:
        ...     "Report."
        ...     return text
        >>> model = Script(function_call("report", text="All is well."))
        >>> Agent(model, functions=[report], stop_when=stop_on("report")).call("How is it?").output
        {'text': 'All is well.'}
    """

    def stops(context: StopContext) -> Stop | None:
        calls = [f for f in context.reply.message.function_calls if f.name == name and _is_object(f)]
        return Stop(f"{name} was called", object_text(calls[0].arguments_json)) if calls else None

    return stops


def _is_object(f: FunctionCall) -> bool:
    try:
        return isinstance(from_json(object_text(f.arguments_json)), dict)
    except (ValueError, TypeError):  # a TypeError for half a surrogate pair
        return False


def max_function_calls(most: int) -> StopWhen:
    """Stop if the functions that a reply requests would take the call past this number of function runs.

    Function calls that do not run are not counted: unknown names, invalid arguments, repeated calls and denied calls.

    Raises:
        UsageError: If ``most`` is not a number, or is negative.

    Examples:
        >>> Agent(Script("Hi."), stop_when=max_function_calls(10)).call("Hello").output
        'Hi.'
    """
    _check("max_function_calls", most)

    def stops(context: StopContext) -> str | None:
        over = context.runnable > 0 and context.function_calls + context.runnable > most
        return f"more than {most} function calls" if over else None

    return stops


def max_tokens(most: int) -> StopWhen:
    """Stop when the model requests functions and the replies have used more than this number of tokens in total.

    Unreported tokens count as 0, so this never stops a model whose provider does not report them.  Limit such models
    with `Limits.rounds` or `max_function_calls`.

    Raises:
        UsageError: If ``most`` is not a number, or is negative.

    Examples:
        >>> Agent(Script("Hi."), stop_when=max_tokens(20_000)).call("Hello").output
        'Hi.'
    """
    _check("max_tokens", most)

    def stops(context: StopContext) -> str | None:
        over = context.usage.total_tokens > most and context.reply.message.function_calls
        return f"{context.usage.total_tokens} tokens are more than {most}" if over else None

    return stops


def max_cost_usd(most: float, price: Tariff) -> StopWhen:
    """Stop when the model requests functions and the replies have cost more than ``most`` dollars in total.

    Unreported tokens are free; see `max_tokens`.

    Args:
        most: The maximum cost in US dollars.
        price: The price of the model's tokens.

    Examples:
        >>> price = Price(input_micro_usd=250_000, output_micro_usd=2_000_000)
        >>> Agent(Script("Hi."), stop_when=max_cost_usd(0.05, price)).call("Hello").output
        'Hi.'
    """
    _check("max_cost_usd", most)

    def stops(context: StopContext) -> str | None:
        cost = price.cost_pico_usd(context.usage) / 10**12
        over = cost > most and context.reply.message.function_calls
        return f"${cost:.4f} are more than ${most:g}" if over else None

    return stops


def any_of(*conditions: StopWhen) -> StopWhen:
    """Stop when any of these conditions would stop the call.  The first such condition gives the reason.

    Examples:
        >>> stop = any_of(stop_on("report"), max_tokens(20_000))
        >>> Agent(Script("Hi."), stop_when=stop).call("Hello").output
        'Hi.'
    """

    def stops(context: StopContext) -> bool | str | Stop | None:
        return next((verdict for condition in conditions if (verdict := condition(context))), None)

    return stops


def _check(name: str, most: float) -> None:
    require(name, most, is_amount(most), "a number of at least 0")
