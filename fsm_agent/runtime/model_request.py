"""Send a request to the model, whole or streamed, and make its outcome."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

from fsm_agent._internal.redaction import mask_keys
from fsm_agent._internal.values import without_halves
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import CallModel
from fsm_agent.call.interpret import arriving_output, error_text
from fsm_agent.call.outcomes import ModelFailed, Replied
from fsm_agent.errors import ProviderError, TimedOut, UsageError
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    PartialOutput,
    TextDelta,
)
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import MOST, UNUSED, Reply
from fsm_agent.prompts.output import ANSWER
from fsm_agent.runtime.world import World
from fsm_agent.validation import shown

PartialOutputs: TypeAlias = Callable[[Delta], PartialOutput | None]

MAX_SHOWN_CHARS = 200  # of text from outside


async def ask_model(effect: CallModel, world: World, timeout_s: float | None) -> Replied | ModelFailed:
    """Send the request from this task, and return the outcome."""
    try:
        reply = await world.client.acomplete(effect.request, timeout_s=timeout_s)
    except Exception as error:
        return _failure_outcome(effect, error, world)
    return _reply_outcome(effect, reply, "acomplete", world)


def partial_outputs(call: AgentCall) -> PartialOutputs | None:
    """Return a function that makes `PartialOutput`s from the deltas of the next reply; None: it has none."""
    arriving = arriving_output(call.record, call.prompt)
    if arriving is None:
        return None
    number = call.record.turn + 1
    answering: int | None = None  # the number of the function call whose arguments are the answer

    def partial_output(delta: Delta) -> PartialOutput | None:
        nonlocal answering
        if type(delta) is FunctionCallStarted and delta.name == ANSWER and answering is None:
            answering = delta.index
        if type(delta) is not TextDelta and not (type(delta) is ArgumentsDelta and delta.index == answering):
            return None
        try:
            found = arriving.feed(delta.text)
        except Exception:  # of a user's validator, which sees only a part here; the whole answer is validated later
            return None
        return None if found is None else PartialOutput(number, *found)

    return partial_output


async def stream_model(
    effect: CallModel, world: World, timeout_s: float | None, message: int
) -> AsyncGenerator[Delta | Replied | ModelFailed]:
    """Send the request from this task; yield the deltas of the reply, and the outcome at the end.

    Args:
        effect: The request.
        world: Its client.
        timeout_s: How long it may take.
        message: The place of the message to come in the dialog, which the ids of its function calls name.
    """
    reply: Reply | None = None
    calls = _Calls(message)
    try:
        async with aclosing(world.client.astream(effect.request, timeout_s=timeout_s)) as items:
            async for item in items:
                if isinstance(item, Reply):
                    reply = item
                else:
                    yield calls.identified(item) if type(item) in _OF_CALLS else item
    except Exception as error:
        if reply is None:  # otherwise the reply is complete, and closing the stream failed
            yield _failure_outcome(effect, error, world)
            return
    yield _reply_outcome(effect, reply, "astream", world)


class _Calls:
    """The function calls of a reply that arrives.

    Args:
        message: The place of the message to come in the dialog, which their ids name.
    """

    def __init__(self, message: int) -> None:
        self._message = message
        self._names: dict[int, str] = {}
        self._texts: dict[int, list[str]] = {}

    def identified(self, delta: Delta) -> Delta:
        """Return a delta of a call with the id that the call has in the message, and the call if it is complete."""
        id = f"{self._message}.{delta.index}"  # type: ignore[union-attr]
        match delta:
            case FunctionCallStarted():
                self._names[delta.index], self._texts[delta.index] = delta.name, []
                return delta.changed(id=id)
            case ArgumentsDelta():
                self._texts.setdefault(delta.index, []).append(delta.text)
                return delta.changed(id=id)
            case FunctionCallCompleted() if delta.index in self._names:
                text = "".join(self._texts[delta.index])
                return delta.changed(call=FunctionCall(name=self._names[delta.index], arguments_json=text, id=id))
        return delta


_OF_CALLS = (FunctionCallStarted, ArgumentsDelta, FunctionCallCompleted)


def _failure_outcome(effect: CallModel, error: Exception, world: World) -> ModelFailed:
    """Return the outcome for a client's exception; raise the exception if it is a bug, not a failed request."""
    if (failure := transport_failure(error)) is None:
        raise error
    return model_failed(effect, failure, world)


def _reply_outcome(effect: CallModel, reply: Any, method: str, world: World) -> Replied:
    problem: str | None = None
    if type(reply) is not Reply or reply.message.role != "assistant":
        problem = "expected a Reply whose message has the role 'assistant'"
    elif (usage := reply.usage) is not UNUSED:
        for count in (usage.input_tokens, usage.output_tokens, usage.cost_pico_usd):  # the counts that budgets use
            if count is not None and not (type(count) is int and 0 <= count <= MOST):
                problem = usage.problem()
    if problem is not None:
        what = f"what {method}() of the client {getattr(world.client, 'name', world.client)!r} returned"
        raise UsageError(f"{what}: {problem}, got {shown(reply)}")
    reply = without_halves(reply)  # as the journal will have it, so that a replay reads the same
    if effect.is_priced or world.prices is not None:
        reply = world.price_list.priced(reply)
    return Replied(reply=reply, at_s=world.clock.now())


def transport_failure(error: Exception) -> ProviderError | None:
    """Return a client's exception as a `ProviderError`; None for a bug, which another attempt does not cure.

    A custom client raises the errors of its library: `OSError`, with `ConnectionError` and `TimeoutError`,
    or `httpx.TransportError`.  Both may be gone at the next attempt.
    """
    if isinstance(error, ProviderError):
        return error
    httpx = sys.modules.get("httpx")  # not imported: if it is not loaded, the error is not its own
    if not isinstance(error, (OSError, getattr(httpx, "TransportError", OSError))):
        return None
    is_late = isinstance(error, (TimeoutError, getattr(httpx, "TimeoutException", TimeoutError)))
    text = mask_keys(error_text(error))[:MAX_SHOWN_CHARS]
    what = ": ".join(filter(None, ["the client failed", type(error).__name__, text]))
    failure = (TimedOut if is_late else ProviderError)(what, retryable=True)
    failure.__cause__ = error
    return failure


def model_failed(effect: CallModel, error: ProviderError, world: World) -> ModelFailed:
    """Return the outcome of a failed request: the error, and the delay before the next attempt."""
    delay_s = error.retry_after_s
    if delay_s is None:
        delay_s = world.delay_s(effect.attempt, error)
    report = error.report()
    report = report.changed(model=report.model or world.client.name)
    return ModelFailed(error=report, delay_s=delay_s, at_s=world.clock.now())
