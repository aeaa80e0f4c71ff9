"""Errors, grouped by who can fix them.

```
FsmAgentError
├── UsageError(ValueError)     the caller's mistake
│   ├── PromptError            a prompt that cannot be rendered or makes no sense
│   ├── PromptChanged          a prompt that has changed, with on_change="error"
│   ├── ConfigError            a configuration, model name or key that is missing or wrong
│   ├── OutcomeError           an outcome that the call does not wait for
│   │   └── InboxFull          an early answer for which a run of a flow has no room
│   ├── IllegalTrigger         a trigger that no row of the table takes
│   └── FlowError              a flow whose definition is wrong; public in `flows`
├── ParseError(ValueError)     the model's mistake: shown to the model, which tries again
│   ├── TagNotFound, ParseFailed   an answer without an intent's tag, or with an unknown intent
├── Retry                      a function's message to the model: what to do differently
├── ProviderError              the provider's failure; `RETRYABLE_STATUS` lists the statuses worth a retry
│   ├── RateLimited, Overloaded, TimedOut, AuthFailed, BadReply
│   ├── ContextTooLong
│   │   └── BudgetExceeded     a request that was not sent because it exceeds its `Budget`
│   └── ProgramError           the user's code in place of a model, such as `answer`, failed
├── SnapshotError              a snapshot that cannot be read
├── JournalError(ValueError)   a journal that is damaged, reordered, foreign or forged
│   └── KeyMissing             a signed journal that is read without a key, in `call.journal`
├── ReplayError(ValueError)    a journal for which this code takes different steps
├── CallFailed                 an agent call ended without an output; in `call`
├── CallSuspended              an agent call waits for an answer that its driver cannot give; in `call`
├── StoreError                 a store's failure, in `store.errors`: a run is unknown, busy, taken over or changed
└── MCPServerError, MCPToolError   an MCP server is unreachable, or a tool failed; in `mcp.session`
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsm_agent._internal.structs import Value
from fsm_agent._internal.text import hint as hint

__all__ = [
    "AuthFailed",
    "BadReply",
    "BudgetExceeded",
    "ConfigError",
    "ContextTooLong",
    "FsmAgentError",
    "IllegalTrigger",
    "InboxFull",
    "JournalError",
    "OutcomeError",
    "Overloaded",
    "ParseError",
    "ParseFailed",
    "ProgramError",
    "PromptChanged",
    "PromptError",
    "ProviderError",
    "RateLimited",
    "ReplayError",
    "Retry",
    "SnapshotError",
    "TagNotFound",
    "TimedOut",
    "UsageError",
]


class FsmAgentError(Exception):
    """The base class for this package's errors.

    Examples:
        >>> def answer(agent, task):
        ...     try:
        ...         return agent.call(task).text
        ...     except FsmAgentError as error:
        ...         return f"Sorry, no answer: {type(error).__name__}."
        >>> answer(Agent(Script(AuthFailed("the key is wrong", status=401))), "Hello")
        'Sorry, no answer: CallFailed.'
    """


class UsageError(FsmAgentError, ValueError):
    """The caller made a mistake.  The message says what was expected and what was given.

    Examples:
        >>> try:
        ...     Agent(Script(), name=3)
        ... except UsageError as error:
        ...     print(error)
        name of an agent: expected a string such as 'shop', got 3
    """


class PromptError(UsageError):
    """A prompt cannot be rendered or contradicts itself.

    Examples:
        >>> try:
        ...     Prompt("Hello, {{ name }}.")(nmae="Ada")
        ... except PromptError as error:
        ...     print(error)
        the template 'Hello, {{ name }}.' uses no variable 'nmae': did you mean 'name'?
    """


class PromptChanged(UsageError):
    """A call's prompt has changed since the call was made, and ``on_change`` is ``"error"``.

    Examples:
        >>> from fsm_agent.call import restore, snapshot
        >>> prompt = Prompt("Hello, {{ name }}.")
        >>> document = snapshot(Agent(Script()).prepare(prompt(name="Ada")))
        >>> try:
        ...     restore(document, prompt.extend(template="Good day, {{ name }}."), on_change="error")
        ... except PromptChanged as error:
        ...     print("it has changed")
        it has changed
    """


class ConfigError(UsageError):
    """A configuration, model name or key is missing or wrong.

    Examples:
        >>> try:
        ...     build_agent({"agent_type": "no such kind"})
        ... except ConfigError as error:
        ...     print(str(error).splitlines()[0][:40])
        the agent's configuration is not valid:
    """


class OutcomeError(UsageError):
    """The call does not wait for this outcome, and stays unchanged.

    Attributes:
        problem: What is wrong with an answer, for the person who gave it, or "" if that is unknown.

    Examples:
        >>> asked = Agent(Script()).prepare("Hello")
        >>> try:
        ...     asked.advance("ask:9.9", Approved())
        ... except OutcomeError:
        ...     print([effect.key for effect in asked.effects])
        ['begin']
    """

    problem = ""


class InboxFull(OutcomeError):
    """A run of a flow has no room for another early answer; see `FlowLimits.inbox`.

    A driver leaves such an answer in the store until there is room.

    Examples:
        >>> from fsm_agent.flows import Flow, FlowLimits, FlowSuspended, end, pause, wait
        >>> @wait(int, early=True)
        ... def paying(price: int) -> str:
        ...     return f"Please pay {price}."
        >>> night = pause("night", 3600)
        >>> rows = [night.elapsed(paying), paying.done(end("paid"))]
        >>> orders = Flow("orders", int, start=night, rows=rows, limits=FlowLimits(inbox=1), store=MemoryStore())
        >>> run = orders.runs.submit(100, run_id="o1")
        >>> try:
        ...     orders.runs.resume("o1")
        ... except FlowSuspended as error:
        ...     waiting = error.run
        >>> waiting.give(paying, 60)
        >>> try:
        ...     waiting.give(paying, 40)
        ... except InboxFull:
        ...     print(len(waiting.record.inbox["paying"]))
        1
    """


class IllegalTrigger(UsageError):
    """No row of the table takes this trigger in this state, so the call stays unchanged.

    Examples:
        >>> from fsm_agent.call import Cancelled
        >>> ended = Agent(Script("Hi.")).call("Hello").call
        >>> try:
        ...     ended.advance("", Cancelled())
        ... except IllegalTrigger:
        ...     print(ended.state)
        Completed
    """


class FlowError(UsageError):
    """The definition of a flow is wrong.  The message names the row or the state and says what was expected.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return name
        >>> try:
        ...     Flow("hello", str, start=greet, rows=[])
        ... except FlowError as error:
        ...     print(str(error).splitlines()[0][:60])
        flow 'hello': expected a row of greet that takes 'done', got
    """


class SnapshotError(FsmAgentError, ValueError):
    """A snapshot is damaged, has another version, or belongs to another prompt.

    Examples:
        >>> from fsm_agent.call import restore
        >>> try:
        ...     restore("{}", Prompt("Hello"))
        ... except SnapshotError as error:
        ...     print("no snapshot")
        no snapshot
    """


class JournalError(FsmAgentError, ValueError):
    """A journal is damaged, reordered or forged, or belongs to another call.

    Examples:
        >>> from fsm_agent.store import Runs
        >>> host = Agent(Script("Hi."), name="host", store=Runs("runs.db", signing_key="0123456789abcdef" * 2))
        >>> _ = host.call("Hello", run_id="r1")
        >>> try:
        ...     Agent(Script(), name="host", store="runs.db").runs.replay("r1")     # without the key
        ... except JournalError as error:
        ...     print(str(error).partition(":")[0])
        the run 'r1' is signed
    """


class ReplayError(FsmAgentError, ValueError):
    """The current code takes different steps from the code that wrote the journal.

    Examples:
        >>> store = MemoryStore()
        >>> _ = Agent(Script("forty-two"), name="counter", store=store).call("How many?", run_id="r1")
        >>> try:
        ...     Agent(Script(), output=int, name="counter", store=store).runs.replay("r1")
        ... except ReplayError as error:
        ...     print(str(error).partition(",")[0])
        entry 2 (key 'model:0'): 'answered' was taken then
    """


class ParseError(FsmAgentError, ValueError):
    """The model's answer is not in the form that the prompt asks for.

    Parsers raise this error or another `ValueError`.  The model sees the message.

    Examples:
        >>> try:
        ...     first_of_numbers = Prompt("?", output=int).parse("no number")
        ... except ParseError as error:
        ...     print("refused")
        refused
    """


class TagNotFound(ParseError):
    """The answer lacks the element that should contain the intent.

    Args:
        tag: The name of the element.
        message: The message for the model.

    Examples:
        >>> def parse(text):
        ...     if "<plan>" not in text:
        ...         raise TagNotFound("plan")
        ...     return text
        >>> Agent(Script("I plan.", "<plan>Rest.</plan>")).call(Prompt("Plan.", parser=parse)).output
        '<plan>Rest.</plan>'
    """

    def __init__(self, tag: str, message: str = "") -> None:
        super().__init__(message or f"the answer has no <{tag}>…</{tag}>")
        self.tag = tag

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.tag, str(self))


class ParseFailed(ParseError):
    """The element that should contain the intent contains no known intent.

    Args:
        value: The text of the element.
        message: The message for the model.

    Examples:
        >>> def parse(text):
        ...     if text not in ("buy", "sell"):
        ...         raise ParseFailed(text)
        ...     return text
        >>> Agent(Script("hold", "sell")).call(Prompt("Buy or sell?", parser=parse)).output
        'sell'
    """

    def __init__(self, value: str, message: str = "") -> None:
        super().__init__(message or f"{value!r:.120} is not an intent")
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value, str(self))


class Retry(FsmAgentError):
    """Raised by a function to tell the model what to do differently.  The model sees the message unchanged.

    ``raise Retry("No city has this name. Add the country.")``

    Examples:
        >>> @function
        ... def find(order: int) -> str:
        ...     "Find an order."
        ...     if order < 1:
        ...         raise Retry("Orders are counted from 1.")
        ...     return "a lamp"
        >>> model = Script(function_call("find", order=0), function_call("find", order=1), "A lamp.")
        >>> agent = Agent(model, functions=[find])
        >>> agent.call("What is the first order?").output
        'A lamp.'
    """


# Statuses after which another attempt may succeed: RFC 9110 (408, 429, 500 to 504), RFC 8470 (425), Anthropic's 529
# "overloaded", and Cloudflare's 52x for failures between Cloudflare and the provider.  409 is a lock that timed out.
RETRYABLE_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})


_DETAILS = ("status", "code", "request_id", "retryable", "retry_after_s", "model")  # on every `ProviderError`


class ErrorReport(Value, frozen=True, kw_only=True):
    """A `ProviderError` as data, for records, journals and traces."""

    kind: str = "ProviderError"  # the name of the class
    message: str
    status: int | None = None  # HTTP status; 200 if the failure was reported inside a reply
    code: str | None = None  # the provider's own code
    request_id: str | None = None
    retryable: bool = False
    retry_after_s: float | None = None
    model: str | None = None  # provider:model of the request
    required: int | None = None  # tokens; this and the next two belong to `BudgetExceeded`
    hard: int | None = None
    tried: tuple[str, ...] = ()

    def exception(self) -> ProviderError:
        """Return the reported error as an exception."""
        details: dict[str, Any] = {name: getattr(self, name) for name in _DETAILS}
        if self.required is not None:
            details |= {"required": self.required, "hard": self.hard, "tried": self.tried}
        return _PROVIDER_ERRORS.get(self.kind, ProviderError)(self.message, **details)


class ProviderError(FsmAgentError):
    """A provider did not respond, or responded with an error.

    Args:
        message: What happened, in the provider's words if possible.
        status: The HTTP status, or None if there was no response.  It is 200 if the body of the response reported the
            failure.
        code: The provider's error code or type.
        request_id: The provider's request id, for support enquiries.
        retryable: Whether another attempt may succeed.  The default depends on the class and the status.
        retry_after_s: The delay that the provider requested, in seconds.
        model: The requested model, as ``provider:model``.

    Examples:
        >>> try:
        ...     Agent(Script(AuthFailed("the key is wrong", status=401))).call("Hello")
        ... except CallFailed as error:
        ...     print(error.result.ending.reason)
        model failed
    """

    retryable_by_nature: bool | None = None  # None if it depends on the status

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        request_id: str | None = None,
        retryable: bool | None = None,
        retry_after_s: float | None = None,
        model: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.model = model
        if retryable is None:
            retryable = self.retryable_by_nature
        self.retryable = status in RETRYABLE_STATUS if retryable is None else retryable

    def __str__(self) -> str:
        details = {"model": self.model, "status": self.status, "code": self.code, "request_id": self.request_id}
        facts = ", ".join(f"{name}={value}" for name, value in details.items() if value is not None)
        return f"{self.message} [{facts}]" if facts else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return ErrorReport.exception, (self.report(),)

    def report(self) -> ErrorReport:
        """Return this error as data."""
        details = {name: getattr(self, name) for name in _DETAILS}
        return ErrorReport(kind=type(self).__name__, message=self.message, **details)


class RateLimited(ProviderError):
    """The rate limit for requests or tokens was reached (429).  The error is not retryable if the quota is used up.

    Examples:
        >>> agent = Agent(Script(RateLimited("busy", retry_after_s=7), "Hi."))     # its clock does not really wait
        >>> agent.call("Hello").output
        'Hi.'
    """

    retryable_by_nature = True


class Overloaded(ProviderError):
    """The provider is overloaded or temporarily failing (500, 502, 503, 504, 529).

    Examples:
        >>> Agent(Script(Overloaded("try later", status=503), "Hi.")).call("Hello").output
        'Hi.'
    """

    retryable_by_nature = True


class TimedOut(ProviderError):
    """The answer did not arrive in time or was incomplete, or there was no connection.

    Examples:
        >>> slow, other = Script(TimedOut("no reply within 60 s")), Script("Hi.")
        >>> Agent(FallbackClient([slow, other])).call("Hello").output
        'Hi.'
    """

    retryable_by_nature = True


class AuthFailed(ProviderError):
    """The API key is missing or wrong, or it lacks permission (401, 403).

    Examples:
        >>> try:
        ...     Agent(Script(AuthFailed("the key is wrong", status=401))).call("Hello")     # it is not tried again
        ... except CallFailed as error:
        ...     print(error.__cause__)
        the key is wrong [model=script, status=401]
    """

    retryable_by_nature = False


class ContextTooLong(ProviderError):
    """The dialog does not fit the model's context.

    Examples:
        >>> short = Script(ContextTooLong("8,000 tokens at most", status=400))
        >>> Agent(FallbackClient([short, Script("A summary.")])).call("Summarize this book: …").output
        'A summary.'
    """

    retryable_by_nature = False


class BudgetExceeded(ContextTooLong):
    """A request was not sent because it has more tokens than its `Budget` allows, even in its shortest form.

    Attributes:
        required: The number of tokens in the request in its shortest form.
        hard: The maximum number of tokens for a request and its reply.
        tried: The passes that were applied, in order.

    Examples:
        >>> from fsm_agent.context import Budget
        >>> try:
        ...     Agent(Script(), context=[Budget(hard=200)]).call("word " * 1000)
        ... except CallFailed as error:
        ...     print(error.__cause__.required > error.__cause__.hard)
        True
    """

    def __init__(
        self, message: str, *, required: int = 0, hard: int = 0, tried: Sequence[str] = (), **details: Any
    ) -> None:
        super().__init__(message, **details)
        self.required = required
        self.hard = hard
        self.tried = tuple(tried)

    def report(self) -> ErrorReport:
        return super().report().changed(required=self.required, hard=self.hard, tried=self.tried)


class BadReply(ProviderError):
    """The response is not a usable answer: it is not JSON, is cut off, or has an unknown structure.

    Examples:
        >>> Agent(Script(BadReply("the reply was cut off"), "Hi.")).call("Hello").output
        'Hi.'
    """

    retryable_by_nature = True


class ProgramError(ProviderError):
    """User code in place of a model raised an exception or returned the wrong type.

    The code is the `answer` method of an agent class, or a function in a team, so no provider is at fault.  The code's
    exception is the cause of the `CallFailed`.

    Examples:
        >>> class Clerk(AgentBase):
        ...     model = Script()
        ...     def answer(self, task: str) -> str:
        ...         return {}["order"]
        >>> try:
        ...     Clerk().call("Hello")
        ... except CallFailed as error:
        ...     print(error.reason, repr(error.__cause__))
        function failed KeyError('order')
    """

    retryable_by_nature = False


_KINDS: tuple[type[ProviderError], ...] = (ProviderError, *ProviderError.__subclasses__(), BudgetExceeded)
_PROVIDER_ERRORS = {error.__name__: error for error in _KINDS}
