"""Translates a run's events into a client's protocol.

An `EventTranslator` serves one stream, and needs neither an event loop nor HTTP.  `ProtocolTranslator` does the work
that the protocols share: it keeps track of the text already sent, the functions without a result, and the nested
processes.  A function's arguments are sent all at once, because they are masked, and a piece of a key would not be
recognized.  `sse` yields the lines of a stream to a browser.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

from fsm_agent._internal.masking import mask_keys, masked_arguments
from fsm_agent.call.record import State
from fsm_agent.errors import FsmAgentError, OutcomeError
from fsm_agent.messages.event_json import about_question, event_data, json_data, masked_data, parsed
from fsm_agent.messages.events import (
    ArgumentsDelta,
    Done,
    Event,
    FunctionCallCompleted,
    FunctionCallStarted,
    FunctionEnded,
    FunctionProgress,
    FunctionStarted,
    HistoryChanged,
    PartialOutput,
    Question,
    ReasoningDelta,
    ReplyCompleted,
    RequestStarted,
    Stepped,
    Suspended,
    TextDelta,
    unwrapped,
)
from fsm_agent.messages.message import Reasoning
from fsm_agent.prompts.output import ANSWER
from fsm_agent.runtime.log import LOG
from fsm_agent.store.errors import AlreadyAnswered, Conflict, NotAsked, RunExists, RunUnknown
from fsm_agent.web.requests import BadRequest

Data: TypeAlias = dict[str, Any]
T = TypeVar("T")
TEXT, REASONING = "text", "reasoning"
NOT_RUN = "it was not run"
_IS_CALL = re.compile(r"[0-9]+\.[0-9]+").fullmatch  # the id of a function call that a model requested
_STATES = frozenset(map(str, State))
_OF_REPLIES = TextDelta | ReasoningDelta | FunctionCallStarted | ReplyCompleted


class _Inside:
    """What the client knows about one process, which is the run itself or a nested process."""

    def __init__(self) -> None:
        self.number = 0  # of messages so far
        self.open = ""  # TEXT or REASONING: the message that is being sent
        self.is_replying = False  # whether the current reply has begun
        self.told: dict[str, list[str]] = {TEXT: [], REASONING: []}  # the pieces sent of the current reply
        self.calls: dict[int, tuple[str, str, list[str]]] = {}  # of the current reply: id, name and arguments so far
        self.pending: Sequence[Any] = ()  # function calls of a reply that came as a whole
        self.asked: dict[str, str] = {}  # names of functions without a result, by id
        self.known: set[str] = set()  # ids of functions whose call was sent
        self.ended: set[str] = set()  # ids of functions whose end was sent; a stream may begin between call and end


class EventTranslator(ABC):
    """The base class for translators.  A translator translates a run's events for one stream to a client.

    Examples:
        >>> translator: EventTranslator = AgUi("t1", "r1")
        >>> [data["type"] for data in translator.take(TextDelta("Hel"))]
        ['TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT']
    """

    @abstractmethod
    def begin(self) -> list[Data]:
        """Return the beginning of the stream."""

    @abstractmethod
    def take(self, event: Event) -> list[Data]:
        """Return the data to send for an event, or [] if the client does not need the event.

        Args:
            event: The next event of the run.
        """

    @abstractmethod
    def failed(self, text: str, code: str = "") -> list[Data]:
        """Return the data that ends a failed stream."""


class JsonEvents(EventTranslator):
    """Translates events into plain JSON data, like `event_data`, for your own front end.

    An event from a nested agent or flow also has a ``path``.  A failed stream ends with an event of type ``error``.

    Examples:
        >>> translator = JsonEvents()
        >>> told = [data for event in Agent(Script("Hi.")).stream("Hello") for data in translator.take(event)]
        >>> [data["text"] for data in told if data["type"] == "text_delta"], told[-1]["type"]
        (['Hi.'], 'result')
    """

    def begin(self) -> list[Data]:
        return []

    def take(self, event: Event) -> list[Data]:
        return [event_data(event)]

    def failed(self, text: str, code: str = "") -> list[Data]:
        return [{"type": "error", "message": text, "code": code}]


class ProtocolTranslator(EventTranslator):
    """The base class of translators for protocols such as AG-UI."""

    def __init__(self, *, tells_again: bool = False) -> None:
        self._inside: dict[str, _Inside] = {"": _Inside()}
        self._tells_again = tells_again  # whether to send calls from before the stream again, once they run

    def take(self, event: Event) -> list[Data]:
        path, event = unwrapped(event)
        found: list[Data] = []
        if path not in self._inside:
            self._inside[path] = _Inside()
            found += self._entered(path)
        seen = self._inside[path]
        # A journal does not say when a request was sent, and a listener may come later.
        if isinstance(event, RequestStarted) or (isinstance(event, _OF_REPLIES) and not seen.is_replying):
            found += self._begin_reply(path, seen)
        return found + self._take(path, seen, event)

    def _begin_reply(self, path: str, seen: _Inside) -> list[Data]:
        seen.is_replying = True
        seen.told, seen.calls, seen.pending = {TEXT: [], REASONING: []}, {}, ()
        return [*self._close(path, seen), *self._requested(path)]

    def _take(self, path: str, seen: _Inside, event: Any) -> list[Data]:  # noqa: C901, PLR0911, PLR0912  # one a case
        match event:
            case TextDelta():
                return self._say(path, seen, TEXT, event.text)
            case ReasoningDelta():
                return self._say(path, seen, REASONING, event.text)
            case FunctionCallStarted():
                seen.calls[event.index] = event.id, event.name, []
                return self._close(path, seen)
            case ArgumentsDelta() if event.index in seen.calls:
                seen.calls[event.index][2].append(event.text)
            case FunctionCallCompleted() if event.index in seen.calls:
                id, name, pieces = seen.calls[event.index]
                return self._ask(path, seen, id, name, "".join(pieces))
            case ReplyCompleted():
                return self._complete(path, seen, event)
            case HistoryChanged():
                first, pending, seen.pending = event.added[0], seen.pending, ()
                asked = [(f"{first}.{n}", call.name, call.arguments_json) for n, call in enumerate(pending)]
                return [data for each in asked for data in self._ask(path, seen, *each)]
            case FunctionStarted() if self._tells_again and _IS_CALL(event.id):
                return self._ask(path, seen, event.id, event.name, event.arguments_json)
            case FunctionProgress():
                return self._progressed(_under(path, event.id), masked_data({"data": event.data})["data"])
            case FunctionEnded():
                return self._end_function(path, seen, event)
            case PartialOutput() if not path:
                return self._output(masked_data({"data": event.data})["data"])
            case Stepped():
                return self._step(path, seen, event)
            case Suspended():
                return [*self._close_all(event.questions), *self._waits(event.questions)]
            case Done():
                return [*self._close_all(()), *self._ended(event.result)]
        return []

    def _ended(self, result: Any) -> list[Data]:
        told = result.to_dict()
        if not told["failed"]:
            return self._done(told.get("data", told.get("output")))
        if told["reason"] == "cancelled":
            return self._cancelled()
        text = ": ".join(filter(None, [told["reason"], told["detail"]]))
        return self.failed(text, str(told["reason"] or "").replace(" ", "_"))

    # Texts

    def _say(self, path: str, seen: _Inside, kind: str, text: str) -> list[Data]:
        if not text:
            return []
        found: list[Data] = []
        if seen.open != kind:
            found = self._close(path, seen)
            seen.open = kind
            seen.number += 1
            found += self._began(path, kind, seen.number)
        seen.told[kind].append(text)
        return [*found, *self._piece(path, kind, seen.number, text)]

    def _close(self, path: str, seen: _Inside) -> list[Data]:
        kind, seen.open = seen.open, ""
        return self._finished(path, kind, seen.number) if kind else []

    def _complete(self, path: str, seen: _Inside, event: ReplyCompleted) -> list[Data]:
        """Send the rest of a reply or, if the pieces sent do not match it, the whole reply again."""
        message, found = event.reply.message, list[Data]()
        reasoning = "".join([part.text for part in message.parts if isinstance(part, Reasoning)])
        for kind, whole in ((REASONING, reasoning), (TEXT, message.text)):
            told = "".join(seen.told[kind])
            if not whole.startswith(told):
                found += self._close(path, seen)
                told = "" if kind == TEXT else whole  # pieces of reasoning may be only a summary
            found += self._say(path, seen, kind, whole[len(told) :])
        seen.pending, seen.is_replying = message.function_calls, False
        return [*found, *self._close(path, seen)]

    # Functions

    def _ask(self, path: str, seen: _Inside, id: str, name: str, arguments: str) -> list[Data]:
        if id in seen.known or name == ANSWER:
            return []
        seen.known.add(id)
        seen.asked[id] = name
        return [*self._close(path, seen), *self._called(path, _under(path, id), name, masked_arguments(arguments))]

    def _end_function(self, path: str, seen: _Inside, event: FunctionEnded) -> list[Data]:
        if event.id in seen.ended or not _IS_CALL(event.id):
            return []
        again = self._ask(path, seen, event.id, event.name, "") if self._tells_again else []
        seen.asked.pop(event.id, None)
        seen.ended.add(event.id)
        id = _under(path, event.id)
        return [*again, *self._leave(_under(path, f"run:{event.id}"), ()), *self._returned(path, id, event)]

    def _refused(self, path: str, seen: _Inside) -> list[Data]:
        """Return the events that end calls that never began because they were refused."""
        found = [FunctionEnded(id, name, NOT_RUN, True, 0.0) for id, name in [*seen.asked.items()]]
        return [data for ended in found for data in self._end_function(path, seen, ended)]

    # Steps

    def _step(self, path: str, seen: _Inside, step: Stepped) -> list[Data]:
        prefix, _, id = step.key.partition(":")
        if step.trigger == "denied" and prefix == "ask" and id not in seen.ended:
            seen.ended.add(id)
            if self._tells_again and id not in seen.known:
                return []
            return self._denied(path, _under(path, id), step.detail)
        if str(step.to) not in _STATES:
            inside = [name for name in self._inside if name.startswith(_under(path, "")) and name != path]
            left = [data for name in reversed(inside) for data in self._leave(name, ())]
            return [*left, *([] if path else self._stepped(str(step.to)))]
        if step.trigger in ("functions_asked", "answered") and str(step.to) != State.TOOL_INTERRUPT:
            return self._refused(path, seen)
        return []

    def _leave(self, path: str, questions: Sequence[Question]) -> list[Data]:
        seen = self._inside.pop(path, None)
        if seen is None:
            return []
        refused = [] if questions else self._refused(path, seen)
        return [*self._close(path, seen), *refused, *self._left(path, questions)]

    def _close_all(self, questions: Sequence[Question]) -> list[Data]:
        root = self._inside[""]
        inside = [path for path in self._inside if path]
        found = [data for path in reversed(inside) for data in self._leave(path, questions)]
        return [*found, *self._close("", root), *([] if questions else self._refused("", root))]

    # The words of the protocol

    @abstractmethod
    def _began(self, path: str, kind: str, number: int) -> list[Data]: ...
    @abstractmethod
    def _piece(self, path: str, kind: str, number: int, text: str) -> list[Data]: ...
    @abstractmethod
    def _finished(self, path: str, kind: str, number: int) -> list[Data]: ...
    @abstractmethod
    def _called(self, path: str, id: str, name: str, arguments: str) -> list[Data]: ...
    @abstractmethod
    def _returned(self, path: str, id: str, event: FunctionEnded) -> list[Data]: ...
    @abstractmethod
    def _denied(self, path: str, id: str, reason: str) -> list[Data]: ...
    @abstractmethod
    def _progressed(self, id: str, data: Any) -> list[Data]: ...
    @abstractmethod
    def _output(self, data: Any) -> list[Data]: ...
    @abstractmethod
    def _waits(self, questions: Sequence[Question]) -> list[Data]: ...
    @abstractmethod
    def _done(self, output: Any) -> list[Data]: ...
    @abstractmethod
    def _cancelled(self) -> list[Data]: ...

    def _requested(self, path: str) -> list[Data]:
        return []

    def _entered(self, path: str) -> list[Data]:
        return []

    def _left(self, path: str, questions: Sequence[Question]) -> list[Data]:
        return []

    def _stepped(self, state: str) -> list[Data]:
        return []

    def _name_of(self, path: str) -> str:
        """Return the name of a nested process, which is that of its function or state."""
        outer, _, own = path.rpartition("/")
        seen = self._inside.get(outer)
        id = own.partition(":")[2]
        return seen.asked.get(id, own) if seen is not None else own


def _under(path: str, id: str) -> str:
    return f"{path}/{id}" if path else id


def function_id(key: str) -> str:
    """Return the client's id for the function call that a question is about."""
    path, _, own = key.rpartition("/")
    return _under(path, own.partition(":")[2])


def masked_result(event: FunctionEnded) -> str:
    """Return a function's result without secrets."""
    return masked_arguments(event.text) if event.text[:1] in "{[" else mask_keys(event.text)


def masked_question(question: Question) -> Data:
    """Return what a question is about, without secrets."""
    shown: Data = masked_data({"about": json_data(about_question(question))})
    return shown


def as_json(text: str) -> Any:
    """Parse a JSON text, or return the text itself if it is not JSON."""
    found = parsed(text)
    return text if found is None and text.strip() != "null" else found


def arguments_of(text: str) -> Any:
    """Return a function's arguments as an object."""
    found = as_json(text)
    return found if isinstance(found, dict) else {"arguments": found} if found not in ("", None) else {}


ALIVE_S = 15.0  # then a comment is sent, so that proxies do not close the quiet connection


async def sse(
    items: AsyncGenerator[tuple[int, Event]], translator: EventTranslator, *, end: str = "", alive_s: float = ALIVE_S
) -> AsyncGenerator[str]:
    r"""Yield a run's translated events as server-sent events, whose ids are the number of steps so far.

    Errors become events in the protocol.  Those that the client cannot fix are sent without their messages.

    Args:
        items: The iterator from `RunFollower.follow`, which is closed when the client disconnects.
        translator: The translator.
        end: The last line of the stream, such as ``data: [DONE]``.
        alive_s: How long the stream may be silent, in seconds, before a comment is sent.

    Examples:
        >>> async def main():
        ...     async with RunFollower(Agent(Script("Hi."), name="host")) as live:
        ...         run = await live.begin("Hello")
        ...         return [line async for line in sse(live.follow(run), AgUi("t1", "r1"))]
        >>> import asyncio
        >>> asyncio.run(main())[0]
        'data: {"type": "RUN_STARTED", "threadId": "t1", "runId": "r1", "protocolVersion": "1.0"}\n\n'
    """
    begin = translator.begin()  # sent with the first event, because a refused stream has no beginning
    try:
        async with aclosing(or_quiet(items, alive_s)) as coming:
            async for item in coming:
                if item is None:
                    yield ": alive\n\n"
                    continue
                steps, event = item
                for data in begin:
                    yield _lines(data)
                for data in translator.take(event):
                    yield f"id: {steps}\n{_lines(data)}"
                begin = []
        for data in begin:
            yield _lines(data)
    except Exception as error:
        for data in translator.failed(*describe_error(error)):
            yield _lines(data)
    if end:
        yield end


async def or_quiet(items: AsyncGenerator[T], quiet_s: float) -> AsyncGenerator[T | None]:
    """Yield items as they arrive, and None after every ``quiet_s`` seconds without an item."""
    coming: asyncio.Task[T] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(items))
            await asyncio.wait([coming], timeout=quiet_s)
            if not coming.done():
                yield None
                continue
            try:
                item = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield item
    finally:
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait([coming])
        await items.aclose()


async def failing(error: Exception) -> AsyncGenerator[tuple[int, Event]]:
    r"""Raise an error instead of yielding events, so that `sse` sends the error to the client.

    Examples:
        >>> async def main():
        ...     told = sse(failing(BadRequest("no name", "bad_name")), AgUi("t1", "r1"))
        ...     return [line async for line in told][-1]
        >>> import asyncio
        >>> asyncio.run(main())
        'data: {"type": "RUN_ERROR", "message": "no name", "code": "bad_name"}\n\n'
    """
    raise error
    yield  # makes it a generator


# Errors that a client can cause and fix.  The texts of other errors may hold paths, addresses and names of the service.
_OF_CLIENTS = (BadRequest, NotAsked, AlreadyAnswered, Conflict, RunUnknown, RunExists)


def describe_error(error: Exception) -> tuple[str, str]:
    """Return `(text, code)` to describe an error to a client.

    An error that no client can fix is logged under an id, and the client gets only this id.
    """
    if isinstance(error, _OF_CLIENTS):
        return mask_keys(str(error)), getattr(error, "code", type(error).__name__)
    if isinstance(error, OutcomeError):  # its whole text names the run and the question
        return mask_keys(error.problem) or "the answer does not fit the question", "bad_answer"
    id = secrets.token_hex(4)
    LOG.error("a stream failed (%s)", id, exc_info=error)
    code = type(error).__name__ if isinstance(error, FsmAgentError) else "InternalError"
    return f"an internal error; the server has logged it as {id}", code


def _lines(data: Data | Any) -> str:
    return f"data: {json.dumps(data)}\n\n"
