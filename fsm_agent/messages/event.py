"""What can an observer of an agent call see?

Facts for people and programs that watch; the machine never reads one.  New kinds come with time: a consumer
that matches on types should ignore the ones that it does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from fsm_agent._internal.values import frozen
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import Reply, Usage

if TYPE_CHECKING:
    from fsm_agent.lifecycle.call_result import CallResult


@frozen(is_quick=True)
class TextDelta:
    """The next piece of the reply's text."""

    text: str


@frozen(is_quick=True)
class ReasoningDelta:
    """The next piece of what the model thinks."""

    text: str


@frozen(is_quick=True)
class FunctionCallStarted:
    """The model begins to ask for a function; ``index`` counts the calls of this reply from 0."""

    index: int
    name: str
    provider_id: str | None = None


@frozen(is_quick=True)
class ArgumentsDelta:
    """The next piece of the arguments (JSON) of the call number ``index`` of this reply."""

    index: int
    text: str


@frozen(is_quick=True)
class FunctionCallCompleted:
    """No more arguments are to come of the call number ``index`` of this reply.

    It comes once more when a service goes on with a call that it had left.
    """

    index: int


@frozen(is_quick=True)
class UsageReported:
    """What the reply has cost so far, each time that the provider says something new of it.

    The last one of a reply is what `ReplyCompleted` says too.
    """

    usage: Usage


Delta: TypeAlias = (
    TextDelta | ReasoningDelta | FunctionCallStarted | ArgumentsDelta | FunctionCallCompleted | UsageReported
)


@frozen()
class RequestStarted:
    """The model is being asked: for the how many-th time in this call, and with how many messages."""

    number: int  # from 1; attempts at one request count
    messages: int


@frozen(is_quick=True)
class ReplyCompleted:
    """The model's reply is complete."""

    reply: Reply

    @property
    def text(self) -> str:
        """What it says in words."""
        return self.reply.message.text

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The functions that it asks for."""
        return self.reply.message.function_calls

    @property
    def usage(self) -> Usage:
        """What it cost."""
        return self.reply.usage


@frozen(is_quick=True)
class Stepped:
    """A row of the table was taken; ``source == to`` when the call stayed where it was."""

    source: str
    trigger: str
    to: str
    key: str  # of the effect that was answered; "" for what nobody asked for
    at_s: float  # Unix time
    guard: str = ""  # the one that let the row be taken; "" for a row without
    detail: str = ""  # why, when the row is an error's
    usage: Usage | None = None  # of the reply that was read
    served_by: str | None = None  # which of several clients answered


@frozen()
class LoopDetected:
    """The model asks for just the same again and again; ``action`` is what `Limits.on_loop` says of that."""

    name: str  # of the function; of all of them, when a reply asks for several
    count: int  # of the rounds in a row that ask for it
    action: str


@frozen(is_quick=True)
class FunctionStarted:
    """A function is being run now."""

    id: str
    name: str
    arguments_json: str


@frozen()
class FunctionProgress:
    """A function that is being run says how far it is; see `Context.emit`."""

    id: str
    name: str
    data: Any


@frozen(is_quick=True)
class FunctionEnded:
    """A function returned, raised or was let go of; ``text`` is what it said, before a `ResultPipeline`."""

    id: str
    name: str
    text: str
    is_error: bool
    duration_s: float


@frozen()
class ResultProcessed:
    """The pipeline's processor changed what a function returned; tokens are estimates here and in what follows."""

    id: str
    name: str
    original_tokens: int
    processed_tokens: int


@frozen()
class ResultExtracted:
    """The pipeline's extractor took from a long result what matters."""

    id: str
    name: str
    original_tokens: int
    extracted_tokens: int


@frozen()
class ResultCached:
    """The pipeline's cacher keeps a long result outside the dialog, and a summary stands for it."""

    id: str
    name: str
    original_tokens: int
    summary_tokens: int


@frozen()
class ObservationsMasked:
    """So many more results of functions are masked from this request on."""

    count: int
    tokens_saved: int


@frozen()
class Suspended:
    """The call waits for somebody who is not here; ``keys`` name what it waits for."""

    keys: tuple[str, ...]


@frozen(is_quick=True)
class Done:
    """The call has ended; nothing follows.  ``result`` is its `CallResult`."""

    result: CallResult


ResultChanged: TypeAlias = ResultProcessed | ResultExtracted | ResultCached
Event: TypeAlias = (
    RequestStarted
    | Delta
    | ReplyCompleted
    | Stepped
    | LoopDetected
    | FunctionStarted
    | FunctionProgress
    | FunctionEnded
    | ResultChanged
    | ObservationsMasked
    | Suspended
    | Done
)
