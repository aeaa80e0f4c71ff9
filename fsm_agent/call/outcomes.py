"""The outcomes of effects, and the events that the table receives in place of some outcomes.

`fsm_agent.call.triggers` decides which event an outcome becomes.

``kind`` is the name of the trigger, and the tag in JSON.  ``at_s`` is the Unix time of the outcome, or 0.0 if unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from typing import Any, ClassVar, TypeAlias

from msgspec.structs import astuple

from fsm_agent._internal.structs import Tagged, Value, defaults_of, is_finite, is_whole
from fsm_agent.call.record import CallRecord
from fsm_agent.errors import ErrorReport, OutcomeError, UsageError
from fsm_agent.messages.message import Attachment, Document, FunctionCall, Image, Message, check_roles, unpaired
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.validation import invalid


def _each(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(is_right, value))


def _are_messages(value: Any) -> bool:
    if not (isinstance(value, tuple) and all(isinstance(item, Message) for item in value)):
        return False
    try:
        check_roles(value)
    except UsageError as error:
        raise OutcomeError(f"Injected: {error}") from None
    if (flaw := unpaired(value)) is not None:
        raise OutcomeError(f"Injected: expected messages in which each call has one result, got {flaw}")
    return True


_NEEDED = object()  # stands for the default of a required field
# By annotation: the right class or a check, and the words for a right value.
_RIGHT: dict[str, tuple[type | Callable[[Any], bool], str]] = {
    "str": (str, "a string"),
    "str | None": (lambda value: isinstance(value, str | None), "a string, or None"),
    "bool": (bool, "True or False"),
    "float": (is_finite, "a finite number"),
    "Reply": (Reply, "a Reply"),
    "ErrorReport": (ErrorReport, "an ErrorReport"),
    "Usage": (lambda value: isinstance(value, Usage) and value.problem() is None, "a Usage with counts of at least 0"),
    "tuple[Attachment, ...]": (
        _each(lambda item: isinstance(item, Image | Document)),
        "a tuple of Images and Documents",
    ),
    "tuple[Message, ...]": (_are_messages, "a tuple of Messages"),
    "tuple[int, ...]": (_each(lambda item: is_whole(item) and item >= 1), "a tuple of rounds, from 1"),
}


@cache
def _rules_of(cls: type[_Checked]) -> tuple[tuple[str, Any, Any, str], ...]:
    """Return `(name, default, class or check, description)` for each of an outcome's fields."""
    annotations = {name: right for base in cls.__mro__ for name, right in get_annotations(base).items()}
    defaults = defaults_of(cls)
    return tuple([(name, defaults.get(name, _NEEDED), *_RIGHT[annotations[name]]) for name in cls.__struct_fields__])


class _Checked(Tagged, frozen=True, kw_only=True):
    """A base for outcomes that check the types of their fields, so that records with them can be read back."""

    at_s: float = 0.0

    def __post_init__(self) -> None:
        rules = zip(astuple(self), _rules_of(type(self)))  # noqa: B905  # `strict` takes a third of the check
        for value, (name, default, is_right, right) in rules:
            if value is default or type(value) is is_right:
                continue
            if is_right is is_finite and type(value) is float and value - value == 0.0:  # a fast path for most values
                continue
            if not (isinstance(value, is_right) if isinstance(is_right, type) else is_right(value)):
                raise invalid(f"{type(self).__name__}.{name}", value, right, OutcomeError)


class Begun(_Checked, frozen=True, kw_only=True, tag="begun"):
    """The call has begun.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0, id="c1"))
        >>> asked.state
        <State.CALLING: 'Calling'>
    """

    at_s: float
    id: str = ""  # the call's unique id
    system: str | None = None  # replaces the system prompt in the dialog; None keeps it


class Replied(_Checked, frozen=True, kw_only=True, tag="replied"):
    """The model replied.  `triggers` decides what kind of reply it is.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("model:0", Replied(reply=Reply.of("Hi.")))
        >>> asked.state
        <State.COMPLETED: 'Completed'>
    """

    reply: Reply


class ModelFailed(_Checked, frozen=True, kw_only=True, tag="model_failed"):
    """The model did not reply.

    Examples:
        >>> asked = Agent(Script(RateLimited("busy", retry_after_s=7), "Hi.")).call("Hello")
        >>> [step.trigger for step in asked.trace]
        ['begun', 'model_failed', 'slept', 'answered']
    """

    error: ErrorReport
    delay_s: float = 0.0  # the seconds until the next attempt, if there is one
    usage: Usage = UNUSED  # tokens of the calls inside a program that ran in place of a model and failed


class Slept(_Checked, frozen=True, kw_only=True, tag="slept"):
    """A `Sleep` is over.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("model:0", ModelFailed(error=RateLimited("busy").report(), delay_s=7.0))
        >>> _ = asked.advance("sleep:1", Slept(at_s=7.0))
        >>> asked.state
        <State.CALLING: 'Calling'>
    """


class Approved(_Checked, frozen=True, kw_only=True, tag="approved"):
    """The function may be called.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> agent = Agent(Script(function_call("erase"), "Done."), functions=[erase], name="clerk", store=MemoryStore())
        >>> try:
        ...     agent.call("Tidy up.", run_id="tidy")
        ... except CallSuspended:
        ...     print(agent.runs.resume("tidy", {"ask:1.0": Approved()}).output)
        Done.
    """


class Modified(_Checked, frozen=True, tag="modified"):
    """The function may be called, but with these arguments instead of the model's.  They are checked in the same way.

    Examples:
        >>> def approve(call):
        ...     return Modified('{"path": "old.txt"}')
        >>> @function
        ... def erase(path: str) -> str:
        ...     "Erase a file."
        ...     return f"{path} is gone"
        >>> agent = Agent(Script(function_call("erase", path="new.txt"), "Done."), functions=[erase], approve=approve)
        >>> agent.call("Tidy up.").function_calls[0].result
        'old.txt is gone'
    """

    arguments_json: str


class Denied(_Checked, frozen=True, tag="denied"):
    """The function may not be called.  The model sees the reason.

    Examples:
        >>> @function(needs_approval=True)
        ... def erase() -> str:
        ...     "Erase."
        ...     return "gone"
        >>> model = Script(function_call("erase"), "I left it.")
        >>> Agent(model, functions=[erase], approve=lambda call: Denied("not today")).call("Tidy up.").output
        'I left it.'
    """

    reason: str = ""


class Returned(_Checked, frozen=True, kw_only=True, tag="returned"):
    """The function returned or raised an exception.  ``text`` is its result or its error.

    Examples:
        >>> weather = Function(name="weather", parameters={"type": "object", "properties": {}})
        >>> asked = Agent(Script(function_call("weather"), "Sunny."), functions=[weather])
        >>> try:
        ...     asked.call("What is the weather?")
        ... except CallSuspended as waiting:
        ...     _ = waiting.call.advance(waiting.call.effects[0].key, Returned(text="sun"))
        ...     print(asked.run(waiting.call).output)
        Sunny.
    """

    text: str
    is_error: bool = False
    attachments: tuple[Attachment, ...] = ()
    is_cached: bool = False  # True if the function did not run, because an earlier result was still valid
    releases: tuple[int, ...] = ()  # rounds whose results are no longer needed, according to the function
    usage: Usage = UNUSED  # the tokens that the function used, if it is an agent
    duration_s: float = 0.0  # how long the function ran; 0 if unknown


class FunctionFailed(_Checked, frozen=True, kw_only=True, tag="function_failed"):
    """The function raised an exception, and its `Function.on_error` makes the agent call fail.

    Examples:
        >>> @function(on_error="fail")
        ... def dial() -> str:
        ...     "Dial."
        ...     raise ConnectionError("no line")
        >>> try:
        ...     Agent(Script(function_call("dial")), functions=[dial]).call("Call Ada.")
        ... except CallFailed as error:
        ...     print(error.trace[-1].trigger, "in", error.function)
        function_failed in dial
    """

    text: str
    usage: Usage = UNUSED  # see `Returned`
    reason: str = ""  # why a state in a flow was declared failed; "" if the function raised an exception
    duration_s: float = 0.0  # see `Returned`


class Started(_Checked, frozen=True, kw_only=True, tag="started"):
    """A function that must not run twice is about to start.

    Examples:
        >>> @function(once=True)
        ... def pay() -> str:
        ...     "Pay."
        ...     return "paid"
        >>> [step.trigger for step in Agent(Script(function_call("pay"), "Done."), functions=[pay]).call("Pay.").trace]
        ['begun', 'functions_asked', 'started', 'returned', 'answered']
    """


class Interrupted(_Checked, frozen=True, kw_only=True, tag="interrupted"):
    """A function that must not run twice was started, but its driver is gone, so its outcome is unknown.

    Examples:
        >>> pay = Function(name="pay", call=lambda: "paid", once=True)
        >>> asked = Agent(Script(), functions=[pay]).prepare("Pay.")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("model:0", Replied(reply=Reply.of(function_call("pay"))))
        >>> _ = asked.advance("start:1.0", Started())
        >>> _ = asked.advance("run:1.0", Interrupted())
        >>> asked.effects[0].key                                     # for `reconcile`, or for a person
        'reconcile:1.0'
    """


class RunAgain(_Checked, frozen=True, kw_only=True, tag="run_again"):
    """The function is known to have done nothing, so it may be run again.

    Examples:
        >>> pay = Function(name="pay", call=lambda: "paid", once=True)
        >>> agent = Agent(Script("Paid."), functions=[pay])
        >>> asked = agent.prepare("Pay.")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("model:0", Replied(reply=Reply.of(function_call("pay"))))
        >>> _ = asked.advance("start:1.0", Started())
        >>> _ = asked.advance("run:1.0", Interrupted())
        >>> _ = asked.advance("reconcile:1.0", RunAgain())
        >>> agent.run(asked).function_calls[0].result
        'paid'
    """


class Checked(_Checked, frozen=True, kw_only=True, tag="checked"):
    """The check accepted the answer, and may have changed it.

    Examples:
        >>> Agent(Script("42"), output=int, check=lambda output, context: output + 1).call("42?").output
        43
    """

    output_json: str | None = None  # the changed output as JSON, or None if the check did not change it


class CheckRefused(_Checked, frozen=True, tag="check_refused"):
    """The check raised `Retry`.  The model sees why, and tries again.

    Examples:
        >>> def check(output, context):
        ...     if "SELECT" not in output:
        ...         raise Retry("Only SELECT is allowed.")
        ...     return output
        >>> Agent(Script("DELETE", "SELECT 1"), check=check).call("Which query?").output
        'SELECT 1'
    """

    reason: str


class CheckFailed(_Checked, frozen=True, kw_only=True, tag="check_failed"):
    """The check raised another exception or took too long, so the call fails.

    Examples:
        >>> def check(output, context):
        ...     raise ConnectionError("no line")
        >>> try:
        ...     Agent(Script("42"), check=check).call("How many?")
        ... except CallFailed as error:
        ...     print(error.reason)
        check failed
    """

    text: str
    name: str = ""  # the check's name


class Injected(_Checked, frozen=True, tag="injected"):
    """Messages to add to the next request to the model.

    Pass this under the key ``""``, because it is not a response to an effect.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("", Injected((Message.of("user", "Be brief."),)))
        >>> asked.effects[0].request.messages[-1].text
        'Be brief.'
    """

    messages: tuple[Message, ...]


class Expired(_Checked, frozen=True, kw_only=True, tag="expired"):
    """The deadline has passed.  Pass this under the key ``""``, because it is not a response to an effect.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("", Expired())
        >>> asked.state
        <State.FAILED: 'Failed'>
    """


class Stopped(_Checked, frozen=True, kw_only=True, tag="stopped"):
    """A request to complete the call with its last reply.

    Pass this under the key ``""``, because it is not a response to an effect.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("", Stopped(reason="no more time"))
        >>> asked.state
        <State.COMPLETED: 'Completed'>
    """

    reason: str = ""


class Cancelled(_Checked, frozen=True, kw_only=True, tag="cancelled"):
    """A request to cancel the call.  Pass this under the key ``""``, because it is not a response to an effect.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> _ = asked.advance("begin", Begun(at_s=0.0))
        >>> _ = asked.advance("", Cancelled(reason="he is ill"))
        >>> asked.state
        <State.FAILED: 'Failed'>
    """

    reason: str = ""


Outcome: TypeAlias = (
    Begun
    | Replied
    | ModelFailed
    | Slept
    | Approved
    | Modified
    | Denied
    | Returned
    | FunctionFailed
    | Started
    | Interrupted
    | RunAgain
    | Checked
    | CheckRefused
    | CheckFailed
    | Injected
    | Expired
    | Stopped
    | Cancelled
)
"""The outcome of one of an agent call's effects, or an event in the call itself, such as a cancellation.

Examples:
    >>> outcome: Outcome = Denied("not today")
    >>> outcome.reason
    'not today'
"""


# Events for the table: an interpreted reply, or the end of an inner agent


class FunctionsRequested(Value, frozen=True):
    """A reply that requests function calls: its message and calls, with new ids.  Some calls may already be settled."""

    message: Message
    calls: tuple[FunctionCall, ...]


class FinalReply(Value, frozen=True):
    """A final reply, with its output or the reason why it has none."""

    reply: Reply
    output: Any = None
    repairs: tuple[str, ...] = ()  # the repairs that the output needed
    problem: str = ""
    error: Exception | None = None  # raised by the parser
    call: FunctionCall | None = None  # the call whose arguments are the answer, or None if the text is the answer
    output_json: str | None = None  # the output as changed by a check


class StoppedReply(Value, frozen=True):
    """A reply at which `stop_when` ended the call."""

    requested: FunctionsRequested
    reason: str
    output_json: str | None = None


class SummaryTaken(Value, frozen=True):
    """A usable summary of the dialog's beginning has arrived."""

    text: str
    covers: int  # how many messages it replaces


class TooLong(Value, frozen=True):
    """The provider refused a request as too long."""

    error: ErrorReport
    shorten_to: int | None  # tokens that the next attempt may have, or None if nothing may be left out


class HandedOver(Value, frozen=True, kw_only=True):
    """Another agent takes over the dialog, at the model's request or because it held the dialog in an earlier turn."""

    kind: ClassVar[str] = "handed_over"

    name: str  # of the handoff
    agent: str  # its name
    at_s: float


class HandoffEnded(Value, frozen=True, kw_only=True):
    """The agent that took over the dialog has ended, so the call ends in the same way."""

    kind: ClassVar[str] = "relayed"

    name: str  # of the handoff
    record: CallRecord
    at_s: float

    @property
    def usage(self) -> Usage:
        """The tokens that the other agent used."""
        return self.record.total_usage
