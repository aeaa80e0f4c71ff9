"""Events: what an observer of an agent call sees.

Facts for people and programs that observe a call; the machine never reads one.  New kinds come with time: a consumer
that matches on types should ignore those that it does not know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from fsm_agent._internal.generics import Out
from fsm_agent._internal.values import Value
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Reply, Usage

if TYPE_CHECKING:
    from fsm_agent.lifecycle.call_result import CallResult


class TextDelta(Value, frozen=True):
    """The next piece of the reply's text."""

    text: str


class ReasoningDelta(Value, frozen=True):
    """The next piece of the model's reasoning."""

    text: str


class FunctionCallStarted(Value, frozen=True):
    """The model begins to request a function; ``index`` counts the calls of this reply from 0."""

    index: int
    name: str
    provider_id: str | None = None


class ArgumentsDelta(Value, frozen=True):
    """The next piece of the arguments (JSON) of the call number ``index`` of this reply."""

    index: int
    text: str


class FunctionCallCompleted(Value, frozen=True):
    """The arguments of the call number ``index`` of this reply are complete.

    It comes once more when a service resumes a call that it had left.
    """

    index: int


class UsageReported(Value, frozen=True):
    """The usage of the reply so far, at each new report of the provider.

    The last one of a reply equals that of `ReplyCompleted`.
    """

    usage: Usage


Delta: TypeAlias = (
    TextDelta | ReasoningDelta | FunctionCallStarted | ArgumentsDelta | FunctionCallCompleted | UsageReported
)


class PartialOutput(Value, frozen=True):
    """The output in the reply so far, as far as it is there and valid: JSON data, not an instance of the type.

    Each one of a request extends the one before; the next request, after a refused answer, say, begins anew.
    """

    number: int  # of the request, as in `RequestStarted`
    data: Any


class RequestStarted(Value, frozen=True):
    """A request is sent to the model, with so many messages; ``number`` counts the requests of this call."""

    hidden = ("shown",)

    number: int  # from 1; each attempt at a request counts
    messages: int
    shown: Sequence[Message] = ()  # these messages: what masking, processors and the exception branch leave and add


class ReplyCompleted(Value, frozen=True):
    """The model's reply is complete."""

    reply: Reply

    @property
    def text(self) -> str:
        """The text of its message."""
        return self.reply.message.text

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The functions that it requests."""
        return self.reply.message.function_calls

    @property
    def usage(self) -> Usage:
        """The tokens that it took."""
        return self.reply.usage


class Stepped(Value, frozen=True):
    """A row of the table was taken; ``source == to`` when the call stayed where it was."""

    source: str
    trigger: str
    to: str
    key: str  # of the effect that was answered; "" for an unrequested outcome
    at_s: float  # Unix time
    guard: str = ""  # the one that let the row be taken; "" for a row without
    detail: str = ""  # why, when the row is an error's
    usage: Usage | None = None  # of the interpreted reply
    served_by: str | None = None  # name of the one that answered, of several clients


class LoopDetected(Value, frozen=True):
    """The model requests exactly the same again and again; ``action`` is the value of `Limits.on_loop`."""

    name: str  # of the function; of all, when a reply requests several
    count: int  # of the rounds in a row that request it
    action: str


class FunctionStarted(Value, frozen=True):
    """A function is being run now."""

    id: str
    name: str
    arguments_json: str


class FunctionProgress(Value, frozen=True):
    """A running function reports its progress; see `Context.emit`."""

    id: str
    name: str
    data: Any


class FunctionEnded(Value, frozen=True):
    """A function returned, raised or was abandoned; ``text`` is its result or error, before a `ResultPipeline`."""

    hidden = ("traceback",)

    id: str
    name: str
    text: str
    is_error: bool
    duration_s: float
    traceback: str = ""  # of the exception that it raised, if it did, from the first line of its own code


class ResultProcessed(Value, frozen=True):
    """The pipeline's processor changed a function's result; tokens are estimates here and in the following events."""

    id: str
    name: str
    original_tokens: int
    processed_tokens: int


class ResultExtracted(Value, frozen=True):
    """The pipeline's extractor reduced a long result to what matters."""

    id: str
    name: str
    original_tokens: int
    extracted_tokens: int


class ResultCached(Value, frozen=True):
    """The pipeline's cacher stores a long result outside the dialog, where a summary replaces it."""

    id: str
    name: str
    original_tokens: int
    summary_tokens: int


class ObservationsMasked(Value, frozen=True):
    """So many more results of functions are masked from this request on."""

    count: int
    tokens_saved: int


class ContextMeasured(Value, frozen=True):
    """The dialog is beyond the ``soft`` limit of a `TokenBudget`: the tokens of the request that follows.

    ``passes`` are the processors that shortened it from ``before`` to ``tokens``.
    """

    before: int
    tokens: int
    soft: int
    passes: tuple[str, ...] = ()


class Suspended(Value, frozen=True):
    """The call waits for an answer that its driver cannot give; ``keys`` are those of its effects."""

    keys: tuple[str, ...]
    wake_at_s: float | None = None  # Unix time at which it goes on by itself; None: never


class Done(Value, Generic[Out], frozen=True):
    """The call has ended; nothing follows.  ``result`` is its `CallResult`."""

    result: CallResult[Out]


class Inside(Value, frozen=True):
    """An event of a process inside of the one that is driven."""

    path: str  # the names of the processes that lead to it, from the outside, joined by slashes
    event: Event


ResultChanged: TypeAlias = ResultProcessed | ResultExtracted | ResultCached
InterimEvent: TypeAlias = (  # any but the last
    RequestStarted
    | Delta
    | PartialOutput
    | ReplyCompleted
    | Stepped
    | LoopDetected
    | FunctionStarted
    | FunctionProgress
    | FunctionEnded
    | ResultChanged
    | ObservationsMasked
    | ContextMeasured
    | Suspended
    | Inside
)
Event: TypeAlias = InterimEvent | Done
