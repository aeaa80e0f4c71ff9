"""Test doubles: a client with scripted replies, a clock that never waits, and values and registries for tests."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from typing import Any, TypeAlias, Union

from pydantic import BaseModel, TypeAdapter
from tenacity import wait_exponential

from fsm_agent._internal.structs import New, Vector, from_json, is_amount, to_json
from fsm_agent.agents.agent_base import AGENTS
from fsm_agent.call.call import AgentCall
from fsm_agent.call.effects import AskSummary, CallModel, Request
from fsm_agent.call.journal import Journal, line_of
from fsm_agent.call.outcomes import Begun, ModelFailed, Replied
from fsm_agent.call.process import prefix_of
from fsm_agent.call.record import CallRecord
from fsm_agent.call.result import CallResult
from fsm_agent.call.snapshots import inconsistency
from fsm_agent.clients.named_clients import CLIENTS
from fsm_agent.clients.sync_verbs import SyncVerbs
from fsm_agent.errors import TimedOut, UsageError
from fsm_agent.functions.function import FUNCTIONS
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Delta,
    FunctionCallCompleted,
    FunctionCallStarted,
    ReasoningDelta,
    TextDelta,
    UsageReported,
)
from fsm_agent.messages.message import FunctionCall, Message, Part, Reasoning, Text
from fsm_agent.messages.reply import UNUSED, Reply, TokenLogprob
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.library import PROMPTS
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.prompts.unions import tags_of
from fsm_agent.providers.catalog import PROVIDERS
from fsm_agent.providers.codec import Profile, offered_functions
from fsm_agent.runtime.environment import Clock, SystemClock, random_id
from fsm_agent.validation import invalid, require, safe_repr


class ScriptError(AssertionError):
    """A test's script does not fit the requests, because replies are missing or left over.

    Examples:
        >>> try:
        ...     Agent(Script()).call("Hello")
        ... except ScriptError as error:
        ...     print("a reply is missing")
        a reply is missing
    """


class FakeClock:
    """A clock that moves only when something sleeps or the test advances it.

    Args:
        start_s: The initial Unix time.

    Attributes:
        sleeps: All delays so far, in seconds.

    Examples:
        >>> clock = FakeClock(start_s=0.0)
        >>> clock.advance(60.0)
        >>> clock.now()
        60.0
    """

    def __init__(self, start_s: float = 1_000_000_000.0) -> None:
        self._now_s = start_s
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self._now_s

    def advance(self, delay_s: float) -> None:
        """Move the clock forward."""
        self._now_s += delay_s

    def sleep(self, delay_s: float) -> None:
        """Advance the clock without waiting.  Like `time.sleep`, this raises ValueError for a negative delay."""
        if delay_s < 0:
            raise ValueError(f"the delay of a sleep: expected 0 s or more, got {delay_s!r} s")
        self.sleeps.append(delay_s)
        self._now_s += delay_s

    async def asleep(self, delay_s: float) -> None:
        self.sleep(delay_s)

    def give_way(self) -> Clock:
        """Refuse to be the clock for a run that outlives the process, because the next process will have another clock.

        Raises:
            UsageError: Always.  The default clock of a `Script` returns the system's clock instead.
        """
        raise UsageError(
            "clock: expected the system's clock, since the store outlives this process, got a FakeClock; leave it out,"
            " or use MemoryStore() or SqliteStore(path, clock=clock.now)"
        )


class _CallNumbers:
    """The ids of a `Script`'s calls, which give way to random ids if the store outlives the process.

    Otherwise, the next process would begin with the same numbers.
    """

    def __init__(self) -> None:
        self._numbers = count(1)

    def __call__(self) -> str:
        return f"call-{next(self._numbers)}"

    def give_way(self) -> Callable[[], str]:
        return random_id


class _OwnClock(FakeClock):
    """The default clock of a `Script`, which gives way to the system's clock if the store outlives the process."""

    _has_given_way = False

    def give_way(self) -> Clock:
        self._has_given_way = True
        return SystemClock()

    def advance(self, delay_s: float) -> None:
        if self._has_given_way:
            raise UsageError(
                f"clock of a Script: {delay_s!r} s cannot be skipped, since the store outlives this process and its"
                " time is the system's; use MemoryStore() to skip them"
            )
        super().advance(delay_s)


class Delayed:
    """A reply that arrives after a delay on the script's clock.

    If the reply arrives after the request's timeout or the call's deadline, the request fails with `TimedOut`.  The
    timeout of a flow's state does not apply.

    Args:
        delay_s: The delay in seconds.
        entry: The reply.

    Raises:
        UsageError: If the delay is not a number of at least 0.

    Examples:
        >>> Agent(Script(Delayed(2.0, "Hi."))).call("Hello").output      # no second really passes
        'Hi.'
    """

    def __init__(self, delay_s: float, entry: ScriptEntry) -> None:
        require("delay_s of Delayed", delay_s, is_amount(delay_s), "a number of seconds, followed by the reply")
        self.delay_s = delay_s
        self.entry = entry


def function_call(name: str, /, **arguments: Any) -> FunctionCall:
    """Return a model's request to call a function.

    Args:
        name: The name of the function.
        arguments: The function's arguments, as values that JSON can represent.

    Examples:
        >>> request = function_call("add", a=17, b=25)
        >>> request.name, request.arguments
        ('add', {'a': 17, 'b': 25})
    """
    return FunctionCall(name=name, arguments_json=json.dumps(arguments))


def token_reply(*distributions: Mapping[str, float]) -> Reply:
    """Return a reply with log probabilities.

    Args:
        distributions: The probabilities of some tokens at each position in the answer.  The answer consists of the
            likeliest tokens.

    Examples:
        >>> Agent(Script(token_reply({"yes": 0.7, "no": 0.2}))).call("Is it late?").output
        'yes'
    """
    tokens = []
    for distribution in distributions:
        require("a token", distribution, _is_distribution(distribution), "probabilities of texts, such as {'yes': 0.7}")
        likeliest_first = sorted(distribution.items(), key=lambda item: -item[1])
        top = tuple([(token, math.log(p)) for token, p in likeliest_first if p > 0])
        tokens.append(TokenLogprob(*top[0], top))
    text = "".join([token.token for token in tokens])
    return Reply(message=Message.of("assistant", text), finish="stop", logprobs=tuple(tokens))


def _is_distribution(distribution: object) -> bool:
    """Return whether ``distribution`` maps tokens to probabilities that are not all 0."""
    if not isinstance(distribution, Mapping):
        return False
    return any(distribution.values()) and all(is_amount(p) and p <= 1 for p in distribution.values())


class Pieces:
    """A text reply that is streamed in exactly these pieces.

    Examples:
        >>> events = Agent(Script(Pieces("Hel", "lo"))).stream("Greet.")
        >>> [event.text for event in events if isinstance(event, TextDelta)]
        ['Hel', 'lo']
    """

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces


ScriptEntry: TypeAlias = (
    str
    | BaseModel
    | FunctionCall
    | Sequence[str | Part]
    | Reply
    | Exception
    | Delayed
    | Pieces
    | Callable[[Request], Any]
)
"""A reply in a `Script`.

Examples:
    >>> entries: list[ScriptEntry] = ["Hello.", RateLimited("busy"), function_call("add", a=1, b=2)]
    >>> len(Script(*entries).requests)
    0
"""


class Script(SyncVerbs):
    """A model with scripted replies.

    A script records every request, and raises `ScriptError` if it has no reply for one.  As a context manager, it also
    checks that no replies are left over at the end.

    Args:
        entries: One for each request: text; a pydantic model, which is the output; a `function_call`; a list of several
            parts; a whole `Reply`, with usage or finish reason; an exception to raise (a `ProviderError` fails the
            request, and any other reaches the caller unchanged); `Delayed` or `Pieces`; or a function that takes the
            request and returns one of these.  The function runs in the event loop and must not block.
        by: A mapping to pass instead of ``entries`` if calls run concurrently.  It maps text from the task to the entry
            for one request, or to a `Script` with the entries for several.  For example,
            ``Script(by={"Paris": "sunny", "Rome": "foggy"})`` replies "sunny" if "Paris" is in the newest user message
            that contains one of the texts.
        name: The client's name in traces.
        clock: The environment's clock.  The default is a new `FakeClock` or, with a store that outlives the process,
            the system's clock, because such a store refuses a `FakeClock`.

    Attributes:
        requests: Every `Request`, in order.

    Raises:
        UsageError: If ``by`` does not map texts to entries, or ``entries`` are given as well.

    Examples:
        >>> model = Script(RateLimited("busy"), "It is 42.")
        >>> Agent(model).call("17 + 25?").output
        'It is 42.'
        >>> [request.messages[-1].text for request in model.requests]
        ['17 + 25?', '17 + 25?']
    """

    def __init__(
        self,
        *entries: ScriptEntry,
        by: Mapping[str, ScriptEntry | Script] | None = None,
        name: str = "script",
        clock: FakeClock | None = None,
    ) -> None:
        if by is not None:
            is_mapping = isinstance(by, Mapping) and bool(by) and all(isinstance(text, str) and text for text in by)
            right = "a mapping of texts to replies, such as {'Paris': 'sunny', 'Rome': 'foggy'}"
            require("by of a Script", by, is_mapping, right)
            require("by of a Script", by, not entries, f"by=… without entries ({safe_repr(entries)})")
        by = by or {}
        self._by = {text: entry if isinstance(entry, Script) else Script(entry) for text, entry in by.items()}
        self._entries = deque(entries)  # thread-safe
        self._count = len(entries)
        self._missed = ""  # kept, because an agent that calls this one as a function may catch the error
        self.name = name
        self.clock = clock or _OwnClock()
        self.requests: list[Request] = []

    @classmethod
    def of(cls, journal: Journal | Iterable[str], *, name: str = "script", clock: FakeClock | None = None) -> Script:
        """Return a script that repeats the model's replies in a run, including failures and summaries.

        The replies of concurrent calls are in the order in which they arrived.

        Args:
            journal: The journal of a call, or the entries of a run in a store, such as
                ``agent.runs.all.store.load("order-17").lines``.
            name: The client's name in traces.
            clock: The clock of the environment.

        Raises:
            JournalError: If an entry is damaged.
        """
        if isinstance(journal, Journal):
            taken: list[tuple[str, str | bytes]] = [(entry.key, entry.outcome) for entry in journal.entries]
        else:
            taken = [(line.key, bytes(line.outcome)) for line in map(line_of, journal)]
        entries = list[ScriptEntry]()
        for key, document in taken:
            if prefix_of(key) in (CallModel.prefix, AskSummary.prefix):
                outcome: Replied | ModelFailed = from_json(document, Replied | ModelFailed)
                entries.append(outcome.reply if isinstance(outcome, Replied) else outcome.error.exception())
        return cls(*entries, name=name, clock=clock)

    @property
    def environment_defaults(self) -> dict[str, Any]:
        """The arguments for an `Environment` with this client, which set its clock and rule out randomness."""
        return {
            "clock": self.clock,
            "backoff": wait_exponential(multiplier=1, max=60),
            "new_id": _CallNumbers(),
            "random": lambda: 0.0,
        }

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        return self._next(request, timeout_s)[0]

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[Delta | Reply]:
        """Yield the next reply in pieces, either word by word or as divided by `Pieces`."""
        reply, pieces = self._next(request, timeout_s)
        for delta in _deltas(reply, pieces):
            yield delta
        yield reply

    def assert_exhausted(self) -> None:
        """Check that every reply was requested and that every request got a reply.

        Raises:
            ScriptError: If a reply is left over, or if a reply was missing, even if your code caught that error.
        """
        if self._missed:
            raise ScriptError(self._missed)
        if left := self._unasked():
            count = sum([script._count for script in (self, *self._by.values())])
            raise ScriptError(f"expected requests for all {count} replies, {len(left)} got none: {', '.join(left)}")

    def _unasked(self) -> list[str]:
        inside = [f"{text!r}: {left}" for text, script in self._by.items() for left in script._unasked()]
        return [f"{entry!r:.80}" for entry in self._entries] + inside

    def _next(self, request: Request, timeout_s: float | None) -> tuple[Reply, Sequence[str] | None]:
        offered_functions(request, Profile())  # refuses a tool_choice that names no function
        self.requests.append(request)
        script, name = self._meant(request) if self._by else (self, "Script(…)")
        if script is not self:
            script.requests.append(request)
        try:
            entry = script._entries.popleft()
        except IndexError:
            problem = f"request {len(self.requests)}: expected a reply in {name}, which has {script._count}, got none"
            raise self._missing(f"{problem}; add one for {request.messages[-1]!r:.500}") from None
        return self._make_reply(entry, request, timeout_s)

    def _meant(self, request: Request) -> tuple[Script, str]:
        """Return the script with the reply to a request, and its name for messages."""
        tasks = [message.text for message in reversed(request.messages) if message.role == "user"]
        found = next((texts for task in tasks if (texts := [text for text in self._by if text in task])), [])
        if len(found) != 1:
            known, named = ", ".join(map(repr, self._by)), " and ".join(map(repr, found)) or "none"
            problem = f"request {len(self.requests)}: expected exactly one of {known} in it, got {named}"
            raise self._missing(f"{problem}, in {tasks[:1] or request.messages[-1]!r:.500}")
        (text,) = found
        return self._by[text], f"by={{{text!r}: Script(…)}}"

    def _missing(self, problem: str) -> ScriptError:
        self._missed = self._missed or problem
        return ScriptError(problem)

    def _make_reply(self, entry: Any, request: Request, timeout_s: float | None) -> tuple[Reply, Sequence[str] | None]:
        match entry:
            case Delayed():
                late = timeout_s is not None and entry.delay_s > timeout_s
                self.clock.advance(timeout_s if late and timeout_s else entry.delay_s)
                return self._make_reply(
                    TimedOut(f"no reply within {timeout_s} s") if late else entry.entry, request, None
                )
            case Pieces():
                return Reply.of("".join(entry.pieces)), entry.pieces
            case Exception():
                raise entry
            case BaseModel():
                return Reply.of(entry.model_dump_json()), None
            case Reply():
                return entry, None
            case str() | FunctionCall():
                return Reply.of(entry), None
            case Sequence() if (texts := sum(isinstance(part, str) for part in entry)) > 1:
                what = f"expected a list of one text and function calls, got {texts} texts"
                raise UsageError(f"the reply of a script: {what}; for several replies, pass Script('a', 'b')")
            case Sequence():
                return Reply(message=Message.of("assistant", *entry)), None
            case _ if callable(entry) and not isinstance(entry, type):
                return self._make_reply(entry(request), request, timeout_s)
        right = (
            "a string, function_call('name', …), a list of both, a pydantic model, a Reply, a ProviderError, or a"
            " function of the request"
        )
        raise UsageError(f"the reply of a script: expected {right}, got {entry!r:.80}")

    def __exit__(self, *ending: object) -> None:
        if ending[:1] == (None,):
            self.assert_exhausted()

    async def __aexit__(self, *ending: object) -> None:
        self.__exit__(*ending)


def _deltas(reply: Reply, pieces: Sequence[str] | None) -> Iterator[Delta]:
    index = 0
    for part in reply.message.parts:
        match part:
            case Text():
                yield from [TextDelta(piece) for piece in pieces or re.findall(r"\s*\S+|\s+$", part.text)]
            case Reasoning():
                yield ReasoningDelta(part.text)
            case FunctionCall():
                yield FunctionCallStarted(index, part.name, part.provider_id)
                yield ArgumentsDelta(index, part.arguments_json)
                yield FunctionCallCompleted(index)
                index += 1
    if reply.usage != UNUSED:
        yield UsageReported(reply.usage)


def model_requests(*, allowed: bool) -> AbstractContextManager[None]:
    """Allow or refuse HTTP requests to real models inside the block.  A refused request raises `UsageError`.

    Examples:
        >>> with model_requests(allowed=False):
        ...     print(Agent(Script("Hi.")).call("Hello").output)
        Hi.
    """
    from fsm_agent.clients.http_exchange import REQUESTS_ALLOWED

    return REQUESTS_ALLOWED.set(allowed)


def no_model_requests() -> AbstractContextManager[None]:
    """Refuse every HTTP request to a real model inside the block by raising `UsageError`.

    Examples:
        >>> with no_model_requests():
        ...     print(Agent(Script("Hi.")).call("Hello").output)
        Hi.
    """
    return model_requests(allowed=False)


_TASK = "?"
_WHAT = "the output of example_result"


def as_json(value: Any) -> Any:
    """Return one of this package's values as the JSON data that a store would keep.

    Examples:
        >>> as_json(Message.of("user", "Hi"))["role"]
        'user'
    """
    return json.loads(to_json(tuple(value) if isinstance(value, Vector) else value))


def check_record(record: CallRecord) -> str | None:
    """Describe a contradiction in a call's record, or return None if there is none.  This takes linear time.

    Examples:
        >>> check_record(Agent(Script("Hi.")).call("Hello").record) is None
        True
    """
    return inconsistency(record)


@contextmanager
def registries() -> Iterator[None]:
    """Undo all registrations of agents, clients, functions, prompts and providers at the end of the ``with`` block.

    Examples:
        >>> with registries():
        ...     class Poet(AgentBase):
        ...         agent_type = "poet"
        ...         expertise = "You write poems."
        >>> try:
        ...     build_agent({"agent_type": "poet"})
        ... except ConfigError:
        ...     print("no class has this agent_type")
        no class has this agent_type
    """
    with ExitStack() as stack:
        for registry in (AGENTS, CLIENTS, FUNCTIONS, PROMPTS, PROVIDERS):
            stack.enter_context(registry.scoped())
        yield


def example_result(output: New, *types: Any, dialog: Dialog | None = None) -> CallResult[New]:
    """Return the whole result of a call that was answered with ``output``, without calling a model.

    Args:
        output: The parsed answer.
        types: The possible types of the call's output, such as those in ``ask(agent, Approve, Reject)``, or a
            parametrized type such as ``tuple[Part, ...]``.  The default is the class of ``output``.
        dialog: The conversation before the answer.  The default is one question.

    Raises:
        UsageError: If the output is not of any of the types, or cannot be parsed from a model's answer.

    Examples:
        >>> example_result(7).output
        7
    """
    kinds = types or (type(output),)
    text = output if kinds == (str,) and isinstance(output, str) else _text(output, kinds)
    seeded = Dialog().put(_TASK) if dialog is None else dialog
    of_all: Any = Union[kinds]  # noqa: UP007  # any number of types
    call: AgentCall[Any] = AgentCall.seed(seeded, Prompt(_TASK, output=of_all))
    call.advance("begin", Begun(at_s=0.0, id="example"))
    (request,) = call.effects
    call.advance(request.key, Replied(reply=Reply.of(text), at_s=0.0))
    if call.record.ending is None:
        problem = str(call.problem).partition("\n")[0]
        raise invalid(_WHAT, output, f"an output that can be read from a model's answer ({problem})")
    if type(call.output) is not type(output) or call.output != output:
        raise invalid(_WHAT, output, f"its type as well, as in example_result({safe_repr(output)}, tuple[Part, ...])")
    return call.result()


def _text(output: Any, kinds: Sequence[Any]) -> str:
    for kind, tag in zip(kinds, tags_of(kinds), strict=True):
        adapter: Any = TypeAdapter(kind)
        try:
            adapter.validate_python(output, strict=True)
            text = str(adapter.dump_json(output), "utf-8")
        except (ValueError, TypeError):
            continue
        return text if tag is None else f'{{"{tag}":{text}}}'
    names = " or ".join([getattr(kind, "__name__", str(kind)) for kind in kinds])
    raise invalid(_WHAT, output, f"{names} that JSON can hold")
