"""Events: what observers of an agent call see.

They are meant for people and programs; the state machine itself never reads them.  New kinds will be added, so ignore
unknown types.  Drivers report the steps, activities announce requests and functions, and
`fsm_agent.call.derived_events` adds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeAlias

from typing_extensions import TypeVar

from fsm_agent._internal.structs import Value, from_json, to_json
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Reply, Usage


class Question(Value, frozen=True):
    """An effect that is waiting for an answer from a person or another program.

    Examples:
        >>> erase = '{"function": "erase", "arguments": "{}"}'
        >>> Question("ask:1.0", "approval", erase, ("approved", "denied")).text
        'erase({})'
    """

    key: str  # the effect's key
    kind: str  # "approval", "result" (of a function without a callable), "doubt" (whether it ran), "answer" or "stuck"
    about: str = ""  # the subject as JSON, for display
    answers: tuple[str, ...] = ()  # the kinds of outcomes that answer it
    schema: str = ""  # JSON Schema of the value in the answer, such as new arguments; empty if it has no value

    @property
    def text(self) -> str:
        """What is asked, for people: a flow's question, or a function call such as ``erase({"path": "a.txt"})``."""
        about = self._about
        if "function" in about:
            return f"{about['function']}({about.get('arguments', '')})"
        return str(about.get("question", about.get("problem", self.about)))

    @property
    def types(self) -> tuple[str, ...]:
        """The names of the types that a flow's state accepts, as JSON; empty for other questions."""
        types = self._about.get("types")
        return tuple(map(str, types)) if isinstance(types, list) else ()

    @property
    def until_s(self) -> float | None:
        """The Unix time until which the question can be answered, or None if there is no limit.

        The time is correct as of the run's last write.
        """
        until_s = self._about.get("until_s")
        return float(until_s) if isinstance(until_s, int | float) else None

    def until(self, at_s: float | None) -> Question:
        """Return the question with this Unix time as its deadline."""
        about = self._about
        return self.changed(about=to_json({**about, "until_s": at_s})) if about and at_s is not None else self

    @property
    def _about(self) -> Mapping[str, Any]:
        try:
            about = from_json(self.about or "{}", Any)
        except ValueError:
            return {}
        return about if isinstance(about, dict) else {}


Result = TypeVar("Result", default=Any, covariant=True)  # a `CallResult` or a `FlowResult`


class TextDelta(Value, frozen=True):
    """The next piece of the reply's text.

    Examples:
        >>> events = Agent(Script(Pieces("Hel", "lo"))).stream("Greet.")
        >>> [event.text for event in events if isinstance(event, TextDelta)]
        ['Hel', 'lo']
    """

    text: str


class ReasoningDelta(Value, frozen=True):
    """The next piece of the model's reasoning.

    Examples:
        >>> ReasoningDelta("17 + 20 is 37 …").text
        '17 + 20 is 37 …'
    """

    text: str


class FunctionCallStarted(Value, frozen=True):
    """The model has started to request a function call.  ``index`` is the call's position in the reply, from 0.

    Examples:
        >>> FunctionCallStarted(0, "add").name
        'add'
    """

    index: int
    name: str
    provider_id: str | None = None
    id: str = ""  # the id in `FunctionStarted` if the reply is accepted unchanged; set by the driver


class ArgumentsDelta(Value, frozen=True):
    """The next piece of the JSON arguments for call number ``index`` in this reply.

    Examples:
        >>> ArgumentsDelta(0, '{"a": ').text
        '{"a": '
    """

    index: int
    text: str
    id: str = ""  # see `FunctionCallStarted`


class FunctionCallCompleted(Value, frozen=True):
    """The arguments for call number ``index`` in this reply are complete.

    The event is reported again when a service resumes an interrupted call.

    Examples:
        >>> events = Agent(Script(function_call("add", a=1), "3")).stream("1 + 2?")
        >>> [event.call.arguments for event in events if isinstance(event, FunctionCallCompleted)]
        [{'a': 1}]
    """

    index: int
    call: FunctionCall | None = None  # the call, with the id as in `FunctionStarted`; the driver sets the id


class UsageReported(Value, frozen=True):
    """The reply's usage so far, each time the provider reports it.

    A reply's last report equals the usage in `ReplyCompleted`.

    Examples:
        >>> UsageReported(Usage(input_tokens=10, output_tokens=2)).usage.total_tokens
        12
    """

    usage: Usage


Delta: TypeAlias = (
    TextDelta | ReasoningDelta | FunctionCallStarted | ArgumentsDelta | FunctionCallCompleted | UsageReported
)
"""A piece of a streamed reply.

Examples:
    >>> events = Agent(Script(Pieces("Hel", "lo"))).stream("Greet.")
    >>> len([event for event in events if isinstance(event, Delta)])
    2
"""


class PartialOutput(Value, frozen=True):
    """The valid part of the output so far, as JSON data rather than an instance of the type.

    Within one request, each event extends the previous one.  The next request, for example after a refusal, starts from
    the beginning.  If a union is requested with tags, the data contains the tag, although the output does not.  Only
    the first document whose beginning matches the type is shown, and only from the first 250,000 characters of a reply.
    An answer that is found elsewhere, or is repaired, appears only in `Done`.

    Examples:
        >>> agent = Agent(Script(Pieces('{"a": 1', ', "b": 2}')), output=dict[str, int])
        >>> [event.data for event in agent.stream("Count.") if isinstance(event, PartialOutput)][-1]
        {'a': 1, 'b': 2}
    """

    number: int  # the request's number, as in `RequestStarted`
    data: Any


class RequestStarted(Value, frozen=True):
    """A request is being sent to the model.

    ``number`` counts the call's requests from 1; ``messages`` is the number of messages in this one.  If the previous
    request failed, the pieces of its reply no longer count.

    Examples:
        >>> events = Agent(Script("Hi.")).stream("Hello")
        >>> [(event.number, event.messages) for event in events if isinstance(event, RequestStarted)]
        [(1, 1)]
    """

    hidden = ("shown",)

    number: int  # the request's number, from 1; each attempt counts
    messages: int
    shown: Sequence[Message] = ()  # the messages after the passes, including the exception branch


class ReplyCompleted(Value, frozen=True):
    """The model's reply is complete.

    Examples:
        >>> events = Agent(Script("Hi.")).stream("Hello")
        >>> [event.reply.message.text for event in events if isinstance(event, ReplyCompleted)]
        ['Hi.']
    """

    reply: Reply

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.reply.message.text

    @property
    def function_calls(self) -> tuple[FunctionCall, ...]:
        """The functions that the reply requests."""
        return self.reply.message.function_calls

    @property
    def usage(self) -> Usage:
        """The tokens of the reply."""
        return self.reply.usage


class Stepped(Value, frozen=True):
    """The process took a step, according to a row of its table.  If its state stayed the same, ``source == to``.

    Examples:
        >>> events = Agent(Script("Hi.")).stream("Hello")
        >>> [f"{event.source} --{event.trigger}--> {event.to}" for event in events if isinstance(event, Stepped)]
        ['Seeded --begun--> Calling', 'Calling --answered--> Completed']
    """

    source: str
    trigger: str
    to: str
    key: str  # the key of the effect that was answered; "" for an unrequested outcome
    at_s: float  # the Unix time
    guard: str = ""  # the name of the row's guard, or ""
    detail: str = ""  # the reason, if the row handles an error or a denial
    usage: Usage | None = None  # the usage of the interpreted reply
    served_by: str | None = None  # the name of the client that answered, if there are several
    told: str = ""  # what the model is told about a refused answer or function call

    hidden = ("told",)  # it is in the messages


class HistoryChanged(Value, frozen=True):
    """The call's dialog, or the refused answers that follow it in requests, have changed.

    The event precedes the `Stepped` for the step that makes the change.  The positions are half-open ranges in the
    dialog followed by the answers.  Messages are removed from the end and added at the end.

    Examples:
        >>> events = Agent(Script("Hi.")).stream("Hello")
        >>> [event.added for event in events if isinstance(event, HistoryChanged)]
        [(1, 2)]
    """

    added: tuple[int, int]  # the positions among the messages after the change
    removed: tuple[int, int]  # the positions among the messages before the change


class LoopDetected(Value, frozen=True):
    """The model has repeated exactly the same function calls.  ``action`` is the value of `Limits.on_loop`.

    Examples:
        >>> LoopDetected("search", 3, "tell").count
        3
    """

    name: str  # the name of the function, or the names of all functions in the reply
    count: int  # the number of consecutive rounds with the same calls
    action: str


class FunctionStarted(Value, frozen=True):
    """A function starts to run.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add."
        ...     return a + b
        >>> events = Agent(Script(function_call("add", a=1, b=2), "3"), functions=[add]).stream("1 + 2?")
        >>> [event.arguments for event in events if isinstance(event, FunctionStarted)]
        [{'a': 1, 'b': 2}]
    """

    id: str
    name: str
    arguments_json: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments, or an empty dictionary if they are not a JSON object."""
        return FunctionCall(name=self.name, arguments_json=self.arguments_json).arguments


class FunctionProgress(Value, frozen=True):
    """A running function has reported its progress; see `Context.emit`.

    Examples:
        >>> @function
        ... def copy(context: Context) -> str:
        ...     "Copy."
        ...     context.emit("half")
        ...     return "copied"
        >>> events = Agent(Script(function_call("copy"), "Done."), functions=[copy]).stream("Copy it.")
        >>> [event.data for event in events if isinstance(event, FunctionProgress)]
        ['half']
    """

    id: str
    name: str
    data: Any


class FunctionEnded(Value, frozen=True):
    """A function returned, raised an exception or was abandoned.

    ``text`` is its result or error, before any `ResultPipeline`.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add."
        ...     return a + b
        >>> events = Agent(Script(function_call("add", a=1, b=2), "3"), functions=[add]).stream("1 + 2?")
        >>> [(event.name, event.text) for event in events if isinstance(event, FunctionEnded)]
        [('add', '3')]
    """

    hidden = ("traceback",)

    id: str
    name: str
    text: str
    is_error: bool
    duration_s: float
    traceback: str = ""  # the exception's traceback, from the function's first frame on


class ResultProcessed(Value, frozen=True):
    """The pipeline's processor changed a function's result.  In all of a pipeline's events, token counts are estimates.

    Examples:
        >>> ResultProcessed(id="1.0", name="read", original_tokens=90, processed_tokens=40).processed_tokens
        40
    """

    id: str
    name: str
    original_tokens: int
    processed_tokens: int


class ResultExtracted(Value, frozen=True):
    """The pipeline's extractor reduced a long result to the relevant part.

    Examples:
        >>> ResultExtracted(id="1.0", name="read", original_tokens=9_000, extracted_tokens=400).extracted_tokens
        400
    """

    id: str
    name: str
    original_tokens: int
    extracted_tokens: int


class ResultCached(Value, frozen=True):
    """The pipeline's cacher stored a long result outside the dialog, where a summary replaces it.

    Examples:
        >>> ResultCached(id="1.0", name="read", original_tokens=9_000, summary_tokens=120).summary_tokens
        120
    """

    id: str
    name: str
    original_tokens: int
    summary_tokens: int


class ObservationsMasked(Value, frozen=True):
    """From this request on, ``count`` more function results are masked.

    Examples:
        >>> ObservationsMasked(count=2, tokens_saved=3_000).tokens_saved
        3000
    """

    count: int
    tokens_saved: int


class ContextShortened(Value, frozen=True):
    """A request was too long for its `Budget` and was shortened.  Token counts cover the whole request.

    Examples:
        >>> event = ContextShortened(before=12_000, after=7_900, passes=("compress",))
        >>> event.before - event.after
        4100
    """

    before: int  # the request's tokens before the budget's passes
    after: int  # the tokens in the request that is sent
    passes: tuple[str, ...] = ()  # the passes that shortened it, in order


class Summarized(Value, frozen=True):
    """A summary replaces the beginning of the dialog in all later requests.  Token counts are estimates.

    Examples:
        >>> Summarized(before=6_000, after=200).after
        200
    """

    before: int  # the tokens of the messages that it replaces
    after: int  # the summary's tokens


class Suspended(Value, frozen=True):
    """The call is waiting for an answer that its driver cannot give.  ``keys`` are the keys of its questions.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> *_, last = Agent(Script(function_call("erase")), functions=[erase]).stream("Tidy up.")
        >>> last.keys
        ('ask:1.0',)
    """

    keys: tuple[str, ...]
    wake_at_s: float | None = None  # the Unix time at which the call continues without an answer, or None
    questions: tuple[Question, ...] = ()  # the open questions, each with its key
    run_id: str = ""  # the run's name in its store, for ``runs.resume``, or "" if there is no store


class Done(Value, Generic[Result], frozen=True):
    """The call has ended, and this is the last event.  ``result`` is the `CallResult`.

    Examples:
        >>> *_, last = Agent(Script("Hi.")).stream("Hello")
        >>> last.result.output
        'Hi.'
    """

    result: Result


class Inside(Value, frozen=True):
    """An event from an inner process.

    Examples:
        >>> inner = Agent(Script("Guten Tag"), name="translator")
        >>> outer = Agent(Script(function_call("translator", task="Good day"), "Done."), functions=[inner])
        >>> {event.path for event in outer.stream("Translate.") if isinstance(event, Inside)}
        {'run:1.0'}
    """

    path: str  # the names of the enclosing processes, outermost first, joined by slashes
    event: Event


def unwrapped(event: Event) -> tuple[str, Any]:
    """Return `(path, event)`: the path of the process that the event comes from, and the event itself."""
    path = ""
    while isinstance(event, Inside):
        path, event = f"{path}/{event.path}" if path else event.path, event.event
    return path, event


class Where(Value, frozen=True):
    """Identifies a call or a flow's run.  It is the argument to a shared hook's ``of_call``.

    Examples:
        >>> Where(call="c1", agent="shop").agent
        'shop'
    """

    call: str  # the call's id; empty if the call ended before it began
    run: str = ""  # the driven process's run; empty without a store
    agent: str = ""  # the name of the agent or flow; empty for members of a flow
    path: str = ""  # the place in the driven process, as in `Inside`; empty for the driven process itself


ResultChanged: TypeAlias = ResultProcessed | ResultExtracted | ResultCached
"""An event from a `ResultPipeline`.

Examples:
    >>> isinstance(ResultProcessed(id="1.0", name="read", original_tokens=90, processed_tokens=40), ResultChanged)
    True
"""
InterimEvent: TypeAlias = (  # any event except the last
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
"""Any event that `stream` yields or a hook receives.

Examples:
    >>> def on_event(event: Event) -> None:
    ...     print(type(event).__name__)
    >>> on_event(TextDelta("Hel"))
    TextDelta
"""
