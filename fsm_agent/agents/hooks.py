"""Hooks: objects with methods that receive events.

Ready-made hooks are `Metrics` in this module, `LoggingHook` in `fsm_agent.runtime.log`, and `TerminalHook` in
`fsm_agent.cli.output`.

A hook is any object with methods named after events, such as ``on_text_delta``, ``on_stepped`` or
``on_function_ended``.  ``on_event`` receives all events.  For each event, the hooks are called one after another, in
the driver's thread or task.  A slow method therefore delays the call, and an exception stops the driver.

A method with a second parameter also receives the current record of the event's call.  This parameter must have no
default, or be named ``record``, or be annotated with a record type.

A hook that needs to tell calls apart has a method ``of_call``, and receives no events itself.  At each call's first
event, ``of_call`` is called with a `Where`, and returns the hook for this call's events, or None.
"""

from __future__ import annotations

import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from fsm_agent._internal.structs import field_names
from fsm_agent.call.prices import ANY_MODEL, Prices, tariffs_of
from fsm_agent.call.process import ChildHandle, along
from fsm_agent.call.record import ProcessRecord
from fsm_agent.errors import UsageError, hint
from fsm_agent.messages.events import (
    Done,
    Event,
    FunctionEnded,
    FunctionStarted,
    Inside,
    ReplyCompleted,
    RequestStarted,
    Stepped,
    Where,
)
from fsm_agent.messages.reply import UNUSED, Reply, Usage
from fsm_agent.validation import require

if TYPE_CHECKING:
    from fsm_agent.call.process import Process
    from fsm_agent.prompts.prompt import Prompt


def _method(event: type) -> str:
    return "on_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()


_OF_CALL = "of_call"
_METHODS = {event: _method(event) for event in get_args(Event)}


def check_hooks(hooks: Iterable[Any]) -> None:
    """Reject hooks that would never be called, and hooks with an ``on_…`` method that is not named after an event."""
    known = ["on_event", *_METHODS.values()]
    require("hooks", hooks, isinstance(hooks, Sequence) and not isinstance(hooks, str), "a list of objects")
    for hook in hooks:
        if isinstance(hook, type):
            raise UsageError(f"hooks: expected objects, got the class {hook!r:.80}; pass {hook.__name__}()")
        methods = [name for name in dir(hook) if name.startswith("on_") and callable(getattr(hook, name))]
        if callable(getattr(hook, _OF_CALL, None)):
            _check_method(hook, _OF_CALL, "where")
        elif not methods:
            raise UsageError(f"the hook {hook!r:.80}: expected a method for an event, such as {known[1]!r}, got none")
        if unknown := [name for name in methods if name not in known]:
            raise UsageError(
                f"the hook {hook!r:.80}: expected methods named after events, got"
                f" {unknown[0]!r}{hint(unknown[0], known)}"
            )
        for name in methods:
            _check_method(hook, name, "event")


def _check_method(hook: object, name: str, what: str) -> None:
    """Reject a method that cannot be called with an event, or is async, because hooks are not awaited."""
    method = getattr(hook, name)
    if inspect.iscoroutinefunction(method):
        raise UsageError(
            f"{name} of the hook {hook!r:.80}: expected a plain def, since hooks are not awaited, got an async def"
        )
    count = 2 if what == "event" and _gets_record(method) else 1
    try:
        inspect.signature(method).bind(*[None] * count)
    except ValueError:  # the parameters are unknown
        return
    except TypeError:
        called = "an event" if what == "event" else "a Where"
        raise UsageError(
            f"{name} of the hook {hook!r:.80}: expected a method that takes {called}; define it as"
            f" def {name}(self, {what})"
        ) from None


def _gets_record(method: Any) -> bool:
    """Return whether a method's second parameter, after ``self``, takes the record."""
    function = getattr(method, "__func__", None)
    return _takes_record(method, 1) if function is None else _method_takes_record(function)


@lru_cache(maxsize=1_000)  # it is asked for each event
def _method_takes_record(function: Callable[..., Any]) -> bool:
    return _takes_record(function, 2)


def _takes_record(function: Callable[..., Any], place: int) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return False
    by_position = (p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    second = next(islice(by_position, place, None), None)
    return second is not None and (
        second.default is second.empty or second.name == "record" or "Record" in str(second.annotation)
    )


def are_heard(hooks: Sequence[Any], prompt: Prompt[Any]) -> bool:
    """Return whether the events of calls with a prompt reach hooks, which may be those of inner agents."""
    return bool(hooks) or any(f.delegate.has_listener for f in prompt.offers if f.delegate is not None)


class Listener:
    """Passes a process's events to its hooks, and to the hooks of inner processes."""

    def __init__(self, hooks: Sequence[Any], process: Process, name: str) -> None:
        self._outer = ChildHandle(process, hooks, name=name)
        self._run = process.journal.run if process.journal is not None and process.journal.is_stored else ""
        # The hooks for calls, by path and by the id of the hook that returned them.  Keeping that hook keeps its id
        # unique.
        self._made: dict[tuple[int, str], tuple[Any, Any]] = {}

    def __call__(self, event: Event) -> None:
        outer = self._outer
        if not isinstance(event, Inside):
            notify(self._hooks_of(outer, outer, ""), event, outer.process.record)
            return
        path, steps = event.path, list(along(outer.process, event.path))
        newest = steps[-1][0]
        record = _record_of(newest)
        notify(self._hooks_of(outer, newest, path), event, record)
        for inner, rest in steps:
            if rest and inner.hears_inside:
                notify(self._hooks_of(inner, newest, path), Inside(rest, event.event), record)
        own = self._hooks_of(newest, newest, path)
        notify(own, event.event, record)
        if isinstance(event.event, Stepped) and record.ending is not None and event.event == record.trace[-1]:
            notify(own, Done(newest.process.result_so_far), record)

    def _hooks_of(self, asked: ChildHandle, about: ChildHandle, path: str) -> Sequence[Any]:
        """Return those hooks of one process that receive the events from a process at this path."""
        if not any(hasattr(hook, _OF_CALL) for hook in asked.hooks):
            return asked.hooks
        found = [self._hook_for(hook, about, path) if hasattr(hook, _OF_CALL) else hook for hook in asked.hooks]
        return [hook for hook in found if hook is not None]

    def _hook_for(self, asked: Any, about: ChildHandle, path: str) -> Any:
        key = id(asked), path
        if key not in self._made:
            where = Where(getattr(about.process.record, "id", ""), self._run, about.name, path)
            hook = asked.of_call(where)
            if hook is not None and hook is not asked:
                check_hooks((hook,))
            self._made[key] = asked, hook
        return self._made[key][1]


def _record_of(inner: ChildHandle) -> Any:
    record = inner.process.record
    return record.record if isinstance(record, ProcessRecord) else record


def notify(hooks: Iterable[Any], event: Event, record: Any = None) -> None:
    """Call the hooks' methods that receive an event."""
    own = _METHODS.get(type(event), "on_event")
    names = ("on_event",) if own == "on_event" else (own, "on_event")
    for hook in hooks:
        for name in names:
            method = getattr(hook, name, None)
            if method is not None and _gets_record(method):
                method(event, record)
            elif method is not None:
                method(event)


_TOKENS = frozenset([name for name in field_names(Usage) if name.endswith("_tokens")])
_LOCK = Lock()  # events arrive from every thread that uses the agent


@dataclass(slots=True)
class FunctionMetrics:
    """A function's number of runs, number of failures, and total time."""

    runs: int = 0
    failures: int = 0
    duration_s: float = 0.0

    def __add__(self, other: FunctionMetrics) -> FunctionMetrics:
        return FunctionMetrics(
            self.runs + other.runs, self.failures + other.failures, self.duration_s + other.duration_s
        )


@dataclass
class Metrics:
    """A hook that counts what an agent does: ``Agent(…, hooks=[metrics])``.

    Agents inside the agent are not counted unless they have the hook, too.
    For a single call, pass ``metrics.on_event`` as the sink of `Agent.run`.  You can add metrics: ``one + other`` and
    ``sum(many, Metrics())`` return new metrics.  When a call ends, all its states are counted, even those that it
    passed through in another OS process.  Replies and functions are counted in the OS process where they occur.
    Metrics are thread-safe.

    Attributes:
        prices: A `Price` for all models, or prices by model name, with ``"*"`` for all others.  Without a price, a
            reply's cost is taken from its `Usage`, which includes it if the agent has ``prices`` or a budget in
            dollars.
        calls: The number of calls that have ended.
        endings: The number of calls that have ended, for each `Reason`.
        steps: The number of steps for each trigger.  For example, ``steps["parse_failed"]`` counts invalid answers.
        requests: The number of requests sent to models, including failed ones.
        replies: The number of replies from models, including pruned ones.
        usage: The tokens in the replies.
        cost_pico_usd: The replies' cost, in trillionths of a dollar.
        unpriced_tokens: The tokens of replies whose price is not known; the cost does not include them.
        functions: The metrics of each function, by name.
        states: The seconds that calls spent in each state, for calls that have ended.

    Examples:
        >>> metrics = Metrics()
        >>> Agent(Script("Hi."), hooks=[metrics]).call("Hello").output
        'Hi.'
        >>> metrics.calls, metrics.requests
        (1, 1)
    """

    prices: Prices = field(default_factory=dict, repr=False, compare=False)
    calls: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    replies: int = 0
    usage: Usage = UNUSED
    cost_pico_usd: int = 0
    unpriced_tokens: int = 0
    functions: dict[str, FunctionMetrics] = field(default_factory=dict)
    states: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tariffs_of(self.prices, "prices of Metrics")

    @property
    def cost_micro_usd(self) -> int:
        """The replies' cost in millionths of a dollar, rounded from `cost_pico_usd`."""
        return (self.cost_pico_usd + 500_000) // 1_000_000

    def on_event(self, event: Event) -> None:
        """Count an event."""
        with _LOCK:
            match event:
                case RequestStarted():
                    self.requests += 1
                case ReplyCompleted():
                    self._add_reply(event.reply)
                case Stepped():
                    self.steps[event.trigger] += 1
                case FunctionStarted():
                    self.functions = _summed(self.functions, {event.name: FunctionMetrics(runs=1)})
                case FunctionEnded():
                    ended = FunctionMetrics(0, int(event.is_error), event.duration_s)
                    self.functions = _summed(self.functions, {event.name: ended})
                case Done():
                    self.calls += 1
                    if (ending := event.result.ending) is not None:
                        self.endings[str(ending.reason)] += 1
                    self.states = _summed(self.states, _stays(event.result.trace))

    def _add_reply(self, reply: Reply) -> None:
        self.replies += 1
        self.usage += reply.usage
        prices = tariffs_of(self.prices)
        price = prices.get(reply.model or ANY_MODEL) or prices.get(ANY_MODEL)
        cost = reply.usage.cost_pico_usd if price is None else price.cost_pico_usd(reply.usage)
        if cost is None:
            self.unpriced_tokens += reply.usage.total_tokens
        else:
            self.cost_pico_usd += cost

    def __add__(self, other: Metrics) -> Metrics:
        if not isinstance(other, Metrics):
            return NotImplemented
        with _LOCK:
            return Metrics(
                prices={**tariffs_of(other.prices), **tariffs_of(self.prices)},
                functions=_summed(self.functions, other.functions),
                states=_summed(self.states, other.states),
                **{name: getattr(self, name) + getattr(other, name) for name in _COUNTS},
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all counts as plain data for JSON, with times in seconds and money in millionths of a dollar."""
        with _LOCK:
            return {
                "calls": self.calls,
                "endings": dict(self.endings),
                "steps": dict(self.steps),
                "requests": self.requests,
                "replies": self.replies,
                "usage": {name: n for name, n in msgspec.structs.asdict(self.usage).items() if name in _TOKENS},
                "cost_micro_usd": self.cost_micro_usd,
                "unpriced_tokens": self.unpriced_tokens,
                "functions": {name: asdict(function) for name, function in self.functions.items()},
                "states": dict(self.states),
            }


_COUNTS = ("calls", "endings", "steps", "requests", "replies", "usage", "cost_pico_usd", "unpriced_tokens")


def _summed(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {**one, **{name: one[name] + more if name in one else more for name, more in other.items()}}


def _stays(trace: Iterable[Stepped]) -> dict[str, float]:
    """Return the seconds spent in each state.  A stay counts as 0 if a time is unknown or a clock was set back."""
    stays: dict[str, float] = {}
    before_s = 0.0
    for step in trace:
        now_s = step.at_s if 0 < step.at_s < math.inf else before_s
        if before_s:
            stays[step.source] = stays.get(step.source, 0.0) + max(0.0, now_s - before_s)
        before_s = now_s
    return stays
