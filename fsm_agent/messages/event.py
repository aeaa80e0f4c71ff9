"""Events: what an observer of an agent call sees.

They are for people and programs that observe a call; the machine never reads them.  New kinds will be added: ignore the
types that you do not know.
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
    from fsm_agent.machine.process import Question


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
    id: str = ""  # as in `FunctionStarted`, if the reply is taken as it is; the driver sets it, no client does


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
    """The valid part of the output so far: JSON data, not an instance of the type.

    Within one request each event extends the one before.  The next request, as after a refused answer, begins anew.
    """

    number: int  # of the request, as in `RequestStarted`
    data: Any


class RequestStarted(Value, frozen=True):
    """A request is sent to the model; ``number`` counts the requests of this call, ``messages`` its messages."""

    hidden = ("shown",)

    number: int  # from 1; each attempt at a request counts
    messages: int
    shown: Sequence[Message] = ()  # the messages themselves, after the passes, with the exception branch


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
    guard: str = ""  # the guard of the row; "" if it has none
    detail: str = ""  # the reason, if the row handles an error
    usage: Usage | None = None  # of the interpreted reply
    served_by: str | None = None  # name of the client that answered, if there are several


class HistoryChanged(Value, frozen=True):
    """The messages of the call have changed: those of its dialog, followed by the refused answers that it still shows.

    It comes before the `Stepped` of the step that changes them.  The positions are ranges, from the first up to but
    without the last, and empty if both are equal.  What is removed was at the end, and what is added stands there now.
    """

    added: tuple[int, int]  # in the messages after the change
    removed: tuple[int, int]  # in those before it


class LoopDetected(Value, frozen=True):
    """The model keeps requesting exactly the same calls; ``action`` is the value of `Limits.on_loop`."""

    name: str  # of the function, or of all functions of the reply
    count: int  # consecutive rounds that request it
    action: str


class FunctionStarted(Value, frozen=True):
    """A function starts to run."""

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
    traceback: str = ""  # of the exception that it raised, from its own first frame on


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
    """``count`` more results of functions are masked from this request on."""

    count: int
    tokens_saved: int


class ContextShortened(Value, frozen=True):
    """A request was too long for its `Budget`; tokens are those of the whole request, by the budget's count."""

    before: int  # tokens of the request with nothing left out
    after: int  # tokens of the request that is sent
    passes: tuple[str, ...] = ()  # those that made it shorter, in order


class Summarized(Value, frozen=True):
    """A summary takes the place of the beginning of the dialog in all later requests; tokens are estimates."""

    before: int  # tokens of what it stands for
    after: int  # tokens of the summary


class Suspended(Value, frozen=True):
    """The call waits for an answer that its driver cannot give; ``keys`` are those of its effects."""

    keys: tuple[str, ...]
    wake_at_s: float | None = None  # Unix time at which it continues by itself; None: never
    questions: tuple[Question, ...] = ()  # those that are open, each with its key


class Done(Value, Generic[Out], frozen=True):
    """The call has ended; nothing follows.  ``result`` is its `CallResult`."""

    result: CallResult[Out]


class Inside(Value, frozen=True):
    """An event of a process inside the one that is driven."""

    path: str  # the names of the enclosing processes, outermost first, joined by slashes
    event: Event


class Where(Value, frozen=True):
    """A call or a run of a flow, for a hook that is shared: the argument of its ``of_call``."""

    call: str  # its id; empty if it ended before it began
    run: str = ""  # of the process that is driven, in a store; empty: it is in none
    agent: str = ""  # the name of its agent or flow; empty for members of a flow
    path: str = ""  # its place in the process that is driven, as in `Inside`; empty: it is that process


ResultChanged: TypeAlias = ResultProcessed | ResultExtracted | ResultCached
InterimEvent: TypeAlias = (  # any but the last
    RequestStarted
    | Delta
    | PartialOutput
    | ReplyCompleted
    | Stepped
    | HistoryChanged
    | LoopDetected
    | FunctionStarted
    | FunctionProgress
    | FunctionEnded
    | ResultChanged
    | ObservationsMasked
    | ContextShortened
    | Summarized
    | Suspended
    | Inside
)
Event: TypeAlias = InterimEvent | Done
