"""Listeners to events, by the names of their methods.

A hook is any object with methods named after events: ``on_text_delta``, ``on_stepped``, ``on_function_ended``, …;
``on_event`` receives all of them.  Each is called with the event, in the order of the hooks, in the thread or task of
the driver.  A slow method delays the call, and an exception ends the driver.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from fsm_agent.errors import UsageError, hint
from fsm_agent.machine.process import along
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
        if not methods:
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
        inspect.signature(method).bind(None)
    except TypeError:
        raise UsageError(
            f"{name} of the hook {hook!r:.80} cannot be called with an event: def {name}(self, event) would be right"
        ) from None
    except ValueError:  # its parameters are unknown
        return


def listener_of(hooks: Sequence[Any], call: AgentCall[Any]) -> Callable[[Event], None] | None:
    """Return the listener that passes events of a call to its hooks, and to the hooks of agents inside it.

    None: there are no hooks.
    """
    prompt = call.prompt
    if not prompt.delegates or not any(f.delegate.has_listener for f in prompt.offers if f.delegate):
        return partial(notify, hooks) if hooks else None
    return make_listener(hooks, call)


def make_listener(hooks: Sequence[Any], process: Process) -> Callable[[Event], None]:
    """Return a listener that passes events of a process to its hooks, and to those of processes inside."""

    def tell(event: Event) -> None:
        notify(hooks, event)
        if not isinstance(event, Inside):
            return
        for inner, rest in along(process, event.path):
            if not rest:
                notify(inner.hooks, event.event)
                r = inner.process.record
                if isinstance(event.event, Stepped) and r.ending is not None and event.event == r.trace[-1]:
                    notify(inner.hooks, Done(inner.process.outcome))
            elif inner.hears_inside:
                notify(inner.hooks, Inside(rest, event.event))

    return tell


def combine(tell: Callable[[Event], Any] | None, sink: Callable[[Event], Any] | None) -> Callable[[Event], Any] | None:
    """Return a listener that calls both, the hooks first; None: there is neither."""
    if tell is None or sink is None:
        return tell or sink

    def tell_both(event: Event) -> None:
        tell(event)
        sink(event)

    return tell_both


def notify(hooks: Iterable[Any], event: Event) -> None:
    """Call the methods of hooks that are for an event."""
    name = _METHODS.get(type(event), "on_event")
    for hook in hooks:
        if (method := getattr(hook, name, None)) is not None:
            method(event)
        if name != "on_event" and (method := getattr(hook, "on_event", None)) is not None:
            method(event)
