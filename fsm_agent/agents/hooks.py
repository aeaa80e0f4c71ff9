"""Listeners to events, by the names of their methods.

A hook is any object with methods named after events: ``on_text_delta``, ``on_stepped``, ``on_function_ended``, …;
``on_event`` receives all of them.  Each is called with the event, and with the record of the call if it takes one, in
the order of the hooks, in the thread or task of the driver.  A slow method delays the call, and an exception ends the
driver.

Many calls at once may share a hook.  One that has to tell them apart has a method ``of_call(place)``: it is asked once
for each drive of a call, and returns the hook for that one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args
from weakref import WeakSet

from fsm_agent._internal.values import Value
from fsm_agent.errors import UsageError, hint
from fsm_agent.machine.process import SEPARATOR, along
from fsm_agent.messages.event import Done, Event, Inside, Stepped
from fsm_agent.mistakes import check

if TYPE_CHECKING:
    from fsm_agent.lifecycle.call import AgentCall
    from fsm_agent.machine.process import Process


def _method(event: type) -> str:
    return "on_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()


_METHODS = {event: _method(event) for event in get_args(Event)}


def check_hooks(hooks: Iterable[Any]) -> None:
    """Refuse hooks that would never be called.

    Raises:
        UsageError: An object has no such method, or one that is not named after an event.
    """
    known = ["on_event", *_METHODS.values()]
    check("hooks", hooks, isinstance(hooks, Sequence) and not isinstance(hooks, str), "a list of objects")
    for hook in hooks:
        if isinstance(hook, type):
            raise UsageError(f"the hook {hook!r:.80} is a class: an object of it, {hook.__name__}(), would be right")
        methods = [name for name in dir(hook) if name.startswith("on_") and callable(getattr(hook, name))]
        if not methods and not callable(getattr(hook, "of_call", None)):
            raise UsageError(f"the hook {hook!r:.80} has no method of an event, such as {known[1]!r}")
        if unknown := [name for name in methods if name not in known]:
            raise UsageError(
                f"the hook {hook!r:.80} has {unknown[0]!r}, and no event is called so{hint(unknown[0], known)}"
            )
        for name in methods:
            _check_method(hook, name)


def _check_method(hook: object, name: str) -> None:
    """Refuse a method that cannot be called with an event, and a coroutine function: hooks are not awaited."""
    method = getattr(hook, name)
    if inspect.iscoroutinefunction(method):
        raise UsageError(
            f"{name} of the hook {hook!r:.80} is a coroutine function, and hooks are not awaited: a plain def is right"
        )
    try:
        parameters = inspect.signature(method)
    except ValueError:  # its parameters are unknown
        return
    if _binds(parameters, 1) and "record" not in parameters.parameters:
        return
    if not _binds(parameters, 2):
        raise UsageError(
            f"{name} of the hook {hook!r:.80} cannot be called with an event: def {name}(self, event), or"
            f" {name}(self, event, record), would be right"
        )
    _TAKING_RECORDS.add(getattr(method, "__func__", method))


def _binds(parameters: inspect.Signature, count: int) -> bool:
    try:
        parameters.bind(*[None] * count)
    except TypeError:
        return False
    return True


_TAKING_RECORDS: WeakSet[Any] = WeakSet()  # functions that take the record, too; known before the first event


class CallPlace(Value, frozen=True, kw_only=True):
    """Which call a hook is told of; see ``of_call``.

    Attributes:
        call: The id of the call, or of the run of a flow.
        run: The name of the run in a store; empty: it is in none, or part of another run.
        agent: The name of the agent or flow.
        path: The place inside the process that is driven, as of `Inside`; empty: it is that process itself.
    """

    call: str
    run: str = ""
    agent: str = ""
    path: str = ""


def listener_of(hooks: Sequence[Any], call: AgentCall[Any], agent: str) -> Callable[[Event], None] | None:
    """Return the listener that passes events of a call to its hooks, and to the hooks of agents inside it.

    None: there are no hooks.

    Args:
        hooks: The hooks of its agent.
        call: The call.
        agent: The name of its agent.
    """
    prompt = call.prompt
    if prompt.delegates and any(f.delegate.has_listener for f in prompt.offers if f.delegate):
        return make_listener(hooks, call, agent)
    if any(hasattr(hook, "of_call") for hook in hooks):
        return make_listener(hooks, call, agent)
    return partial(notify, hooks, process=call) if hooks else None


def make_listener(hooks: Sequence[Any], process: Process, name: str) -> Callable[[Event], None]:
    """Return a listener that passes events of a process to its hooks, and to those of processes inside.

    Args:
        hooks: The hooks of its agent or flow.
        process: The process.
        name: The name of its agent or flow.
    """
    told: dict[str, Sequence[Any]] = {}  # hooks by path, each for its call

    def hooks_at(path: str, found: Sequence[Any], inner: Any, agent: str) -> Sequence[Any]:
        if path not in told:
            told[path] = _hooks_of_call(found, inner, agent, path)
        return told[path]

    def tell(event: Event) -> None:
        notify(hooks_at("", hooks, process, name), event, process)
        if not isinstance(event, Inside):
            return
        for inner, rest in along(process, event.path):
            if rest and not inner.hears_inside:
                continue
            path = event.path.removesuffix(rest).removesuffix(SEPARATOR)
            own = hooks_at(path, inner.hooks, inner.process, inner.name) if inner.hooks else ()
            if rest:
                notify(own, Inside(rest, event.event), inner.process)
                continue
            notify(own, event.event, inner.process)
            r = inner.process.record
            if isinstance(event.event, Stepped) and r.ending is not None and event.event == r.trace[-1]:
                notify(own, Done(inner.process.outcome), inner.process)

    return tell


def _hooks_of_call(hooks: Sequence[Any], process: Any, agent: str, path: str) -> Sequence[Any]:
    """Return the hooks for one call.

    Raises:
        UsageError: What ``of_call`` returned is no hook.
    """
    if not any(hasattr(hook, "of_call") for hook in hooks):
        return hooks
    journal = process.journal if not path else None
    run = journal.run if journal is not None and journal.is_stored else ""
    place = CallPlace(call=getattr(process.record, "id", ""), run=run, agent=agent, path=path)
    found = [hook.of_call(place) if hasattr(hook, "of_call") else hook for hook in hooks]
    check_hooks(found)
    return found


def combine(tell: Callable[[Event], Any] | None, sink: Callable[[Event], Any] | None) -> Callable[[Event], Any] | None:
    """Return a listener that calls both, the hooks first; None: there is neither."""
    if tell is None or sink is None:
        return tell or sink

    def tell_both(event: Event) -> None:
        tell(event)
        sink(event)

    return tell_both


def notify(hooks: Iterable[Any], event: Event, process: Any = None) -> None:
    """Call the methods of hooks that are for an event.

    Args:
        hooks: The hooks.
        event: The event.
        process: The process that it is of, whose record some methods take.
    """
    name = _METHODS.get(type(event), "on_event")
    for hook in hooks:
        if (method := getattr(hook, name, None)) is not None:
            _call_method(method, event, process)
        if name != "on_event" and (method := getattr(hook, "on_event", None)) is not None:
            _call_method(method, event, process)


def _call_method(method: Any, event: Event, process: Any) -> None:
    if _TAKING_RECORDS and getattr(method, "__func__", method) in _TAKING_RECORDS:
        method(event, process.record)
    else:
        method(event)
