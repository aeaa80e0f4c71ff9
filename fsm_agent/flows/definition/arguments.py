"""The checks of a flow's arguments; those of its table are in `checks`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.field_checks import is_whole
from fsm_agent._internal.values import field_names
from fsm_agent.errors import hint
from fsm_agent.flows.errors import FlowError
from fsm_agent.flows.process.record import FlowLimits
from fsm_agent.runtime.world import World
from fsm_agent.validation import Rights, check

if TYPE_CHECKING:
    from fsm_agent.flows.flow import Flow


def check_arguments(flow: Flow[Any]) -> None:
    """Refuse arguments that no run could use.

    Raises:
        FlowError: It names the argument, what was expected, and its value.
    """
    check("the name of a flow", flow.name, isinstance(flow.name, str) and bool(flow.name), _NAME, FlowError)
    for name, is_right, right in _RIGHTS:
        value = getattr(flow, name)
        check(f"{name} of the flow {flow.name!r}", value, is_right(value), right, FlowError)
    for n in flow.upgrades:
        right = f"a version from 1 to {flow.version - 1}"
        check(f"a version in upgrades of the flow {flow.name!r}", n, 1 <= n < flow.version, right, FlowError)
    known = [name for name in field_names(World) if name not in ("client", "approve", "results", "prices")]
    for name in flow.world:
        if name not in known:
            raise FlowError(
                f"world of the flow {flow.name!r}: expected options of a World, got {name!r}{hint(name, known)}"
            )


def _is_store(value: Any) -> bool:
    is_kept = not isinstance(value, type) and (hasattr(value, "is_volatile") or hasattr(value, "store"))
    return value is None or is_kept or isinstance(value, str | PathLike)


def _are_upgrades(value: Any) -> bool:
    """Return whether a value is a mapping of functions, or of lists of them, by version."""
    if not isinstance(value, Mapping):
        return False
    steps = [upgrade if isinstance(upgrade, Sequence) else [upgrade] for upgrade in value.values()]
    return all(map(is_whole, value)) and all(one and all(map(callable, one)) for one in steps)


def _is_optional(is_right: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or is_right(value)


_NAME = "a string such as 'support'"
_RIGHTS: Rights = (
    ("rows", lambda v: isinstance(v, Sequence) and not isinstance(v, str), "a list of rows"),
    ("limits", lambda v: isinstance(v, FlowLimits), "FlowLimits such as FlowLimits(steps=100)"),
    ("version", lambda v: is_whole(v, 1), "a whole number from 1 on"),
    (
        "upgrades",
        _are_upgrades,
        "a mapping of versions to functions, or to lists of them, such as {1: renamed(old='new')}",
    ),
    ("store", _is_store, "the path of a file such as 'runs.db', postgresql://host/database, a Store, or Runs"),
    ("approve", _is_optional(callable), "a function of a FunctionCall or None"),
    ("answer", _is_optional(callable), "a function of an AwaitAnswer or None"),
    ("agents", lambda v: isinstance(v, Mapping), "a mapping of roles to agents"),
    ("world", lambda v: isinstance(v, Mapping), "a mapping such as {'threads': 4}"),
)
