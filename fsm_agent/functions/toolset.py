"""Toolsets: functions selected by name, by version, and by the caller's ``deps``.

Cycles in ``depends_on`` are refused here; `fsm_agent.call.rounds` orders the calls of a round.
"""

from __future__ import annotations

import graphlib
import math
import re
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Generic, Protocol, TypeAlias

from typing_extensions import TypeVar

from fsm_agent._internal.structs import Value, is_amount, is_finite
from fsm_agent.errors import PromptError, UsageError, hint
from fsm_agent.functions.context import LATER
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import is_plain, takes
from fsm_agent.validation import invalid, require

_PIECE = re.compile(r"[0-9]{1,18}|[A-Za-z]+")
Deps = TypeVar("Deps", default=Any, contravariant=True)
FnDeps = TypeVar("FnDeps", default=Any)


class FunctionSource(Protocol[Deps]):
    """Anything that provides functions, such as a `Toolset` or an MCP server.

    Examples:
        >>> Agent(Script("Hi."), functions=[Toolset([], name="shop")]).call("Hello").output
        'Hi.'
    """

    @property
    def functions(self) -> tuple[Function[..., Any, Deps], ...]:
        """The functions on offer."""


class AsFunction(Protocol[Deps]):
    """Anything that can become a function, such as an agent."""

    def as_function(self) -> Function[..., Any, Deps]:
        """Return the function."""


class PlainFunction(Protocol):
    """A Python function.

    A `Function` has no ``__name__``, so type checkers do not mistake one that needs other deps for a plain function.
    """

    @property
    def __name__(self) -> str: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


# The functions that may be offered to a model in a call with these deps.
Functions: TypeAlias = Iterable[
    Function[..., Any, FnDeps] | FunctionSource[FnDeps] | AsFunction[FnDeps] | PlainFunction | partial[Any]
]
NO_FUNCTIONS: tuple[Function[..., Any, Any], ...] = ()  # as a default, it leaves the type of deps open


def functions_of(items: Functions, chosen: Callable[[Toolset[Any]], Iterable[Function]] = iter) -> tuple[Function, ...]:
    """Return, in order, the functions in a list of functions, plain callables and sources.

    Args:
        items: The list.
        chosen: A function that returns a toolset's functions.

    Raises:
        UsageError: If an item is of another kind, or if it is a toolset whose functions depend on the agent call.
        PromptError: If a source has a function with the name of another one.
    """
    functions: list[Function] = []
    owners: dict[str, Any] = {}
    for item in sources(items):
        if isinstance(item, Toolset):
            found = tuple(chosen(item))
        else:
            found = functions_of(item.functions) if _is_source(item) else (Function.of(item),)
        for function in found:
            first = owners.setdefault(function.name, item)
            if first is not item and (_is_source(first) or _is_source(item)):
                got = f"{function.name!r} of {_owner(first)} and of {_owner(item)}"
                remedy = "rename one, such as with prefix= of an MCPServer, or Toolset.prefixed"
                raise PromptError(f"functions: expected different names, got {got}; {remedy}")
        functions += found
    return tuple(functions)


def _is_source(item: object) -> bool:
    return not isinstance(item, Function) and _has_functions(item)


def _owner(item: object) -> str:
    return f"{type(item).__name__} {item.name!r:.80}" if hasattr(item, "name") else f"{item!r:.80}"


def sources(items: Any) -> tuple[Any, ...]:
    """Return the items in the argument ``functions``, with agents turned into functions."""
    if hasattr(items, "as_function") or _has_functions(items):
        items = (items,)
    if callable(items):
        name = getattr(items, "name", None) or getattr(items, "__name__", type(items).__name__)
        raise UsageError(f"functions: expected a list, got {name!r} itself; pass [{name}]")
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise invalid("functions", items, "a list of functions")
    return tuple([_as_function(item) if hasattr(item, "as_function") else item for item in items])


def _has_functions(item: object) -> bool:
    # Reading the attribute may start a server, and `hasattr` would hide an AttributeError that is raised meanwhile.
    return hasattr(type(item), "functions") or "functions" in getattr(item, "__dict__", ())


def _as_function(agent: Any) -> Function:
    if isinstance(agent, type):
        raise invalid("one of the functions", agent, "an agent, not its class")
    return agent.as_function()  # type: ignore[no-any-return]


def is_asked_per_call(item: object) -> bool:
    """Return whether an item in the argument ``functions`` is read again for each call, as an MCP server is."""
    return hasattr(type(item), "functions") and not isinstance(item, Toolset)


def check_dependencies(functions: Iterable[Function], owner: str) -> None:
    """Reject dependencies on a missing function, and dependencies that form a cycle.

    Raises:
        PromptError: If the functions are refused.
    """
    graph = {function.name: function.depends_on for function in functions}
    for name, needed in graph.items():
        for other in needed:
            if other not in graph:
                raise PromptError(f"function {name!r} of {owner} depends on the unknown {other!r}{hint(other, graph)}")
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise PromptError(f"functions of {owner} depend on each other in a cycle: {circle}") from error


class _Entry(Value, frozen=True):
    function: Function
    conditions: tuple[Callable[[Any], bool], ...] = ()  # predicates on the deps, which must all hold
    share: float | None = None  # the share of agent calls that get this version, if its name has shares
    choose: Callable[[], float] | None = None

    @property
    def reference(self) -> str:
        return f"{self.function.name}@{self.function.version}"


class Toolset(Generic[Deps]):
    """A named set of functions.  It is immutable, and its methods return changed copies.

    A function may have several versions under one name; the highest is offered.  Wherever a method takes names,
    ``search@1`` stands for a single version.

    Args:
        functions: `Function`s, plain callables, and other sources of functions.
        name: The toolset's name in error messages.

    Raises:
        PromptError: If two functions have the same name and version, or their dependencies can never be met.

    Examples:
        >>> @function
        ... def add(a: int, b: int) -> int:
        ...     "Add."
        ...     return a + b
        >>> maths = Toolset([add], name="maths")
        >>> [found.name for found in maths.prefixed("maths_").functions]
        ['maths_add']
    """

    def __init__(self, functions: Functions[Deps] = (), *, name: str = "") -> None:
        self.name: str = name or getattr(functions, "name", "")
        self._hold(_entries_of(functions))

    def _hold(self, entries: Iterable[_Entry]) -> None:
        self._entries = tuple(entries)
        counts = Counter([entry.reference for entry in self._entries])
        if repeated := [reference for reference, count in counts.items() if count > 1]:
            named = ", ".join([reference.removesuffix("@") for reference in repeated])
            right = "each name and version once"
            raise PromptError(f"toolset {self.name!r}: expected {right}, got two of {named}; rename one")
        offered = [_highest(versions).function for versions in self._by_name().values()]
        check_dependencies(offered, f"toolset {self.name!r}")
        self._offered: tuple[Function[..., Any, Deps], ...] = tuple(offered)

    def _with(self, entries: Iterable[_Entry]) -> Toolset[Deps]:
        made: Toolset[Deps] = Toolset(name=self.name)
        made._hold(entries)
        return made

    @property
    def functions(self) -> tuple[Function[..., Any, Deps], ...]:
        """The functions that may be offered: for each name, the highest version whose share is not 0."""
        return self._offered

    @property
    def decides_per_call(self) -> bool:
        """True if filters or shares decide, for each agent call, which functions are offered."""
        return any(entry.conditions or entry.choose for entry in self._entries)

    def __iter__(self) -> Iterator[Function]:
        """Iterate over the functions offered.

        Raises:
            UsageError: If `decides_per_call` is true, because a list would offer all functions to every caller.
        """
        if self.decides_per_call:
            remedy = "iterate over for_call(deps) instead"
            raise UsageError(f"toolset {self.name!r} chooses its functions for each agent call; {remedy}")
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __repr__(self) -> str:
        return f"Toolset([{', '.join([function.name for function in self.functions])}], name={self.name!r})"

    def pick(self, name: str) -> Function:
        """Return the function with this name: for ``search``, its highest version, and for ``search@1``, that version.

        Raises:
            UsageError: If the name is unknown.
        """
        picked = _highest(self._select(name)).function
        _warn(picked)
        return picked

    def only(self, *names: str) -> Toolset[Deps]:
        """Return only the named functions: ``search`` keeps all versions, and ``search@1`` keeps a single one."""
        kept = {entry.reference for name in names for entry in self._select(name)}
        entries = []
        for entry in self._entries:
            if entry.reference in names:
                _warn(entry.function)
                entry = entry.changed(share=None, choose=None)
            if entry.reference in kept:
                entries.append(entry)
        return self._with(entries)

    def without(self, *names: str) -> Toolset[Deps]:
        """Return all functions except the named ones.  ``search@1`` removes a single version."""
        out = {entry.reference for name in names for entry in self._select(name)}
        return self._with([entry for entry in self._entries if entry.reference not in out])

    def prefixed(self, prefix: str) -> Toolset[Deps]:
        """Return the functions with this prefix before each name.  Dependencies are renamed too."""
        return self._with(_renamed(self._entries, [f"{prefix}{entry.function.name}" for entry in self._entries]))

    def renamed(self, names: Mapping[str, str]) -> Toolset[Deps]:
        """Return the functions under new names.  Dependencies are renamed too.

        A renamed version (``search@1``) becomes a separate function.
        """
        new = {entry.reference: name for old, name in names.items() for entry in self._select(old)}
        return self._with(
            _renamed(self._entries, [new.get(entry.reference, entry.function.name) for entry in self._entries])
        )

    def filtered(self, predicate: Callable[[Function, Deps], bool]) -> Toolset[Deps]:
        """Return the functions with a filter: each is offered only if ``predicate(function, deps)`` is true.

        The predicate sees the functions under their current names.  No function is offered without its dependencies.
        """
        if not (is_plain(predicate) and takes(predicate, 2)):
            raise UsageError(f"a filter: expected a plain predicate of (function, deps), got {predicate!r:.80}")
        return self._with(
            [e.changed(conditions=(*e.conditions, partial(predicate, e.function))) for e in self._entries]
        )

    def route(self, name: str, shares: Mapping[str, float], choose: Callable[[], float]) -> Toolset[Deps]:
        """Return the functions with shares, which divide agent calls among the versions of one function.

        Args:
            name: The function's name.
            shares: The share of each version; their sum is 1.  A version without a share is never chosen.
            choose: A function that returns a number for each agent call, at least 0 and below 1, such as
                ``Random(7).random``.

        Raises:
            UsageError: If there is no such function or version, or the shares are invalid.
        """
        entries = self._select(name)
        _check_shares(name, shares, [entry.function.version for entry in entries])
        if not callable(choose):
            raise UsageError(f"choose: expected a function that gives a number from 0 to below 1, got {choose!r:.80}")
        routed = {entry.reference for entry in entries}
        return self._with(
            [
                e.changed(share=shares.get(e.function.version, 0.0), choose=choose) if e.reference in routed else e
                for e in self._entries
            ]
        )

    def for_call(self, deps: Any = None) -> tuple[Function, ...]:
        """Return the functions offered to one agent call, after filters and shares have been applied.

        Raises:
            UsageError: If a filter did not return a bool, or if ``choose`` did not return a number in its range.
        """
        picked = {}
        for name, versions in self._by_name().items():
            choose = next((entry.choose for entry in versions if entry.choose), None)
            point = _chosen_point(name, choose) if choose else None
            admitted = [entry for entry in versions if all(_admits(entry, holds, deps) for holds in entry.conditions)]
            if point is not None:
                admitted = _routed(admitted, point)
            if admitted:
                picked[name] = _highest(admitted).function
        while lacking := [f.name for f in picked.values() if not picked.keys() >= set(f.depends_on)]:
            for name in lacking:
                del picked[name]
        for function in picked.values():
            _warn(function)
        return tuple(picked.values())

    def _by_name(self) -> dict[str, list[_Entry]]:
        by_name: dict[str, list[_Entry]] = {}
        for entry in self._entries:
            by_name.setdefault(entry.function.name, []).append(entry)
        return by_name

    def _select(self, name: str) -> list[_Entry]:
        selected = [entry for entry in self._entries if name in (entry.function.name, entry.reference)]
        if not selected:
            by_name = self._by_name()
            others = [e.reference for e in by_name.get(name.partition("@")[0], ())] if "@" in name else list(by_name)
            raise UsageError(f"toolset {self.name!r} has no function {name!r}{hint(name, others or by_name)}")
        return selected


def _entries_of(items: Any) -> list[_Entry]:
    entries: list[_Entry] = []
    for item in sources(items):
        if isinstance(item, Toolset):
            entries += item._entries
        elif _is_source(item):
            entries += _entries_of(item.functions)
        else:
            entries.append(_Entry(Function.of(item)))
    return entries


def _renamed(entries: Iterable[_Entry], names: Iterable[str]) -> list[_Entry]:
    """Rename entries.  Dependencies are renamed unless a version keeps the old name."""
    pairs = list(zip(entries, names, strict=True))
    follows: dict[str, str] = {}
    for entry, name in sorted(pairs, key=lambda pair: version_order(pair[0].function.version)):
        follows[entry.function.name] = name
    follows |= {name: name for entry, name in pairs if entry.function.name == name}
    renamed = []
    for entry, name in pairs:
        depends_on = tuple([follows.get(other, other) for other in entry.function.depends_on])
        if (name, depends_on) != (entry.function.name, entry.function.depends_on):
            entry = entry.changed(function=replace(entry.function, name=name, depends_on=depends_on))
        renamed.append(entry)
    return renamed


def _highest(versions: Iterable[_Entry]) -> _Entry:
    """Return the highest version, preferring versions whose share is not 0."""
    return max(versions, key=lambda entry: (entry.share != 0, version_order(entry.function.version)))


def _routed(admitted: Iterable[_Entry], point: float) -> list[_Entry]:
    """Return the version into whose share the point falls.

    The shares of excluded versions go to the other versions.
    """
    versions = sorted(admitted, key=lambda entry: version_order(entry.function.version))
    shares = [(entry.share, entry) for entry in versions if entry.share]
    ends = [*accumulate([share for share, _ in shares])]
    return [shares[min(bisect_right(ends, point * ends[-1]), len(ends) - 1)][1]] if ends else []


def _admits(entry: _Entry, holds: Callable[[Any], bool], deps: Any) -> bool:
    if deps is LATER:
        return True
    admits: Any = holds(deps)
    what = f"the return value of the filter of function {entry.function.name!r}"
    require(what, admits, isinstance(admits, bool), "True or False")
    return bool(admits)


def _warn(function: Function) -> None:
    if function.deprecated:
        which = f"{function.name}@{function.version}".removesuffix("@")
        warnings.warn(f"function {which} is deprecated: {function.deprecated}", DeprecationWarning, stacklevel=3)


def version_order(version: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key for versions: ``""`` < ``1.9`` < ``1.10-rc1`` < ``1.10`` < ``2``."""
    if not version:
        return ()
    pieces = _PIECE.findall(version.removeprefix("v"))
    order = [(2, int(piece), "") if piece[0].isdigit() else (0, 0, piece) for piece in pieces]
    return (*order, (1, 0, version))


def _check_shares(name: str, shares: Mapping[str, float], versions: Sequence[str]) -> None:
    """Reject invalid shares by which agent calls are divided among a function's versions."""
    for version, share in shares.items():
        if version not in versions:
            raise UsageError(f"function {name!r} has no version {version!r}{hint(str(version), versions)}")
        if not is_amount(share):
            raise UsageError(f"the share of {name}@{version}: expected a number from 0 to 1, got {share!r:.80}")
    if not math.isclose(total := math.fsum(shares.values()), 1):
        raise UsageError(f"the shares of function {name!r}: expected a sum of 1, got {total!r}")


def _chosen_point(name: str, choose: Callable[[], float]) -> float:
    """Return the number that ``choose`` gives, after checking that it is at least 0 and below 1."""
    point = choose()
    if not is_finite(point) or not 0 <= point < 1:
        raise UsageError(f"choose of function {name!r}: expected a number from 0 to below 1, got {point!r:.80}")
    return point
