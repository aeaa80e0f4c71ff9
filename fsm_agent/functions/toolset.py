"""Which functions are offered: by name, by version, by who asks?"""

from __future__ import annotations

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple, Protocol, TypeAlias

from fsm_agent._internal.values import frozen
from fsm_agent.errors import PromptError, UsageError, hint
from fsm_agent.functions.function import Function
from fsm_agent.functions.version import check_shares, chosen_point, sharer, version_order
from fsm_agent.mistakes import wrong


class FunctionSource(Protocol):
    """Anything that has functions to offer: a `Toolset`, an MCP server."""

    @property
    def functions(self) -> tuple[Function, ...]:
        """What it offers."""


Functions: TypeAlias = Iterable[Function | Callable[..., Any] | FunctionSource]


def functions_of(given: Functions) -> tuple[Function, ...]:
    """The functions of a list of functions, plain callables and sources, in order.

    Raises:
        UsageError: It is no such list, or holds a toolset that decides anew for each agent call.
    """
    found: list[Function] = []
    for item in _flat(given):
        found += item if isinstance(item, Toolset) else [item]
    return tuple(found)


def sources(given: Any) -> tuple[Any, ...]:
    """Return the items of an argument ``functions``; an agent among them becomes a function.

    Raises:
        UsageError: It is neither a list nor a source of functions.
    """
    if (
        hasattr(given, "as_function")
        or hasattr(type(given), "functions")
        or "functions" in getattr(given, "__dict__", ())
    ):
        given = (given,)
    if callable(given):
        name = getattr(given, "name", None) or getattr(given, "__name__", type(given).__name__)
        raise UsageError(f"functions is {name!r} itself: [{name}], a list of functions would be right")
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise wrong("functions", given, "a list of functions")
    return tuple([_as_function(item) if hasattr(item, "as_function") else item for item in given])


def _as_function(agent: Any) -> Function:
    if isinstance(agent, type):
        raise wrong("one of the functions", agent, "an agent itself, not its class,")
    return agent.as_function()  # type: ignore[no-any-return]


def check_dependencies(functions: Iterable[Function], owner: str) -> None:
    """Refuse dependencies that can never be met.

    Raises:
        PromptError: One is on a function that is not there, or some depend on each other in a circle.
    """
    graph = {function.name: function.depends_on for function in functions}
    for name, needed in graph.items():
        for other in needed:
            if other not in graph:
                raise PromptError(f"function {name!r} of {owner} depends on {other!r}{hint(other, graph)}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise PromptError(f"functions of {owner} depend on each other in a circle: {circle}") from error


class _Entry(NamedTuple):
    """One function of a toolset, in one version."""

    function: Function
    conditions: tuple[Callable[[Any], bool], ...] = ()  # of the deps; it is offered when all hold
    share: float | None = None  # of the agent calls that this version is for; None: its name has no shares
    choose: Callable[[], float] | None = None

    @property
    def reference(self) -> str:
        return f"{self.function.name}@{self.function.version}"


@frozen(eq=False)
class Toolset:
    """Functions under a name: a value, changed by making others of it.

    A name may be there in several versions.  The highest is offered; ``search@1`` stands for one of them wherever
    a method takes names.

    Args:
        functions: `Function`s, plain callables, and other sources of functions.
        name: What error messages call it.

    Raises:
        PromptError: Two have one name and version, or their dependencies can never be met.
    """

    functions: tuple[Function, ...]  # what may be offered: of each name, the highest version that is for anybody
    name: str
    _entries: tuple[_Entry, ...]

    def __init__(self, functions: Functions = (), *, name: str = "") -> None:
        self._settle(_entries_of(functions), name or getattr(functions, "name", ""))

    def _settle(self, entries: Iterable[_Entry], name: str) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "_entries", tuple(entries))
        counts = Counter([entry.reference for entry in self._entries])
        if repeated := [reference for reference, count in counts.items() if count > 1]:
            named = ", ".join([reference.removesuffix("@") for reference in repeated])
            raise PromptError(f"two functions of toolset {name!r} have one name and version: {named}")
        offered = [_highest(versions).function for versions in self._by_name().values()]
        check_dependencies(offered, f"toolset {name!r}")
        object.__setattr__(self, "functions", tuple(offered))

    def _with(self, entries: Iterable[_Entry], name: str | None = None) -> Toolset:
        made = Toolset.__new__(Toolset)
        made._settle(entries, self.name if name is None else name)
        return made

    @property
    def decides_per_call(self) -> bool:
        """Whether `for_call` offers one agent call what it does not offer another: it has filters or shares."""
        return any(entry.conditions or entry.choose for entry in self._entries)

    def __iter__(self) -> Iterator[Function]:
        """What is offered.

        Raises:
            UsageError: That differs from call to call.  A list would offer to everybody what is kept from some.
        """
        if self.decides_per_call:
            raise UsageError(f"toolset {self.name!r} decides anew for each agent call: ask its for_call(deps)")
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __contains__(self, item: object) -> bool:
        """Whether it has a function, or one of this name: ``search`` or ``search@1``."""
        if isinstance(item, str):
            return any(item in (entry.function.name, entry.reference) for entry in self._entries)
        return any(item is entry.function for entry in self._entries)

    def __add__(self, other: FunctionSource) -> Toolset:
        """Both; the functions of each keep their filters and shares."""
        names = [name for name in (self.name, getattr(other, "name", "")) if name]
        return self._with([*self._entries, *_entries_of(other)], "+".join(names))

    def __repr__(self) -> str:
        return f"Toolset([{', '.join([function.name for function in self.functions])}], name={self.name!r})"

    def pick(self, name: str) -> Function:
        """The function of this name: ``search`` is its highest version, ``search@1`` a certain one.

        Raises:
            UsageError: There is none; the error names what was probably meant.
        """
        picked = _highest(self._found(name)).function
        _warn(picked)
        return picked

    def only(self, *names: str) -> Toolset:
        """Just these; ``search`` keeps all versions, ``search@1`` one.

        Of several versions that are named so, each is offered, as ``search_v1`` and ``search_v2``.
        """
        named = {name: self._found(name) for name in names}
        kept = {entry.reference for entries in named.values() for entry in entries}
        certain = {entries[0].reference: entries[0] for name, entries in named.items() if "@" in name}
        for entry in certain.values():
            _warn(entry.function)
        of_name = [entry.function.name for entry in certain.values()]
        entries, new = [], []
        for entry in self._entries:
            if entry.reference in kept:
                function, is_certain = entry.function, entry.reference in certain
                several = is_certain and of_name.count(function.name) > 1
                slug = re.sub(r"[^A-Za-z0-9]", "_", function.version or "0")
                new.append(f"{function.name}_v{slug}" if several else function.name)
                entries.append(entry._replace(share=None, choose=None) if is_certain else entry)
        return self._with(_renamed(entries, new))

    def without(self, *names: str) -> Toolset:
        """All but these; ``search@1`` takes out one version."""
        out = {entry.reference for name in names for entry in self._found(name)}
        return self._with([entry for entry in self._entries if entry.reference not in out])

    def prefixed(self, prefix: str) -> Toolset:
        """Each name with this before it; dependencies follow."""
        return self._with(_renamed(self._entries, [f"{prefix}{entry.function.name}" for entry in self._entries]))

    def renamed(self, names: Mapping[str, str]) -> Toolset:
        """New names for old; dependencies follow.  Of one version (``search@1``) it makes a function of its own."""
        new = {entry.reference: name for old, name in names.items() for entry in self._found(old)}
        return self._with(
            _renamed(self._entries, [new.get(entry.reference, entry.function.name) for entry in self._entries])
        )

    def changed(self, **policy: Any) -> Toolset:
        """One policy for all: ``changed(needs_approval=True, timeout_s=10)``.

        Raises:
            UsageError: There is no such policy, or it makes no sense.
        """
        return self._with([entry._replace(function=Function.of(entry.function, **policy)) for entry in self._entries])

    def filtered(self, predicate: Callable[[Function, Any], bool]) -> Toolset:
        """Offered only where ``predicate(function, deps)`` holds, asked anew for each agent call.

        The predicate sees the functions as they are called now; what depends on a function that is not offered is
        not offered either.
        """
        if not callable(predicate) or inspect.iscoroutinefunction(predicate):
            raise UsageError(f"a filter is {predicate!r}: a plain predicate of (function, deps) would be right")
        return self._with(
            [e._replace(conditions=(*e.conditions, partial(predicate, e.function))) for e in self._entries]
        )

    def route(self, name: str, shares: Mapping[str, float], choose: Callable[[], float]) -> Toolset:
        """Versions of one function by share: each agent call is offered one of them.

        Args:
            name: The function's.
            shares: Of each version; 1 together.  A version that is not named is never picked.
            choose: Gives a number from 0 to below 1 for each agent call: ``Random(7).random``, say.

        Raises:
            UsageError: There is no such function or version, or the shares are no shares.
        """
        entries = self._found(name)
        check_shares(name, shares, [entry.function.version for entry in entries])
        if not callable(choose):
            raise UsageError(f"choose is {choose!r}: a function that gives a number from 0 to below 1 would be right")
        routed = {entry.reference for entry in entries}
        return self._with(
            [
                e._replace(share=shares.get(e.function.version, 0.0), choose=choose) if e.reference in routed else e
                for e in self._entries
            ]
        )

    def for_call(self, deps: Any = None) -> tuple[Function, ...]:
        """What one agent call is offered: filters asked, versions picked.

        Raises:
            UsageError: A filter returned no bool, or ``choose`` no number from 0 to below 1.
        """
        picked = {}
        for name, versions in self._by_name().items():
            choose = next((entry.choose for entry in versions if entry.choose), None)
            point = chosen_point(name, choose) if choose else None
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
        found: dict[str, list[_Entry]] = {}
        for entry in self._entries:
            found.setdefault(entry.function.name, []).append(entry)
        return found

    def _found(self, name: str) -> list[_Entry]:
        found = [entry for entry in self._entries if name in (entry.function.name, entry.reference)]
        if not found:
            by_name = self._by_name()
            known = [e.reference for e in by_name.get(name.partition("@")[0], ())] if "@" in name else list(by_name)
            raise UsageError(f"toolset {self.name!r} has no function {name!r}{hint(name, known or by_name)}")
        return found


def _flat(given: Any) -> Iterator[Function | Toolset]:
    """The functions of a list or a source; toolsets as they are."""
    for item in sources(given):
        if isinstance(item, Toolset):
            yield item
        elif isinstance(item, Function) or not hasattr(item, "functions"):
            yield Function.of(item)
        else:
            yield from _flat(item.functions)


def _entries_of(given: Any) -> list[_Entry]:
    entries: list[_Entry] = []
    for item in _flat(given):
        entries += item._entries if isinstance(item, Toolset) else [_Entry(item)]
    return entries


def _renamed(entries: Iterable[_Entry], names: Iterable[str]) -> list[_Entry]:
    """The entries under these names; a dependency follows when no version keeps the old name."""
    pairs = list(zip(entries, names, strict=True))
    follows: dict[str, str] = {}
    for entry, name in sorted(pairs, key=lambda pair: version_order(pair[0].function.version)):
        follows[entry.function.name] = name
    follows |= {name: name for entry, name in pairs if entry.function.name == name}
    renamed = []
    for entry, name in pairs:
        depends_on = tuple([follows.get(other, other) for other in entry.function.depends_on])
        if (name, depends_on) != (entry.function.name, entry.function.depends_on):
            entry = entry._replace(function=replace(entry.function, name=name, depends_on=depends_on))
        renamed.append(entry)
    return renamed


def _highest(versions: Iterable[_Entry]) -> _Entry:
    """The highest version, of those that are for anybody where there are shares."""
    return max(versions, key=lambda entry: (entry.share != 0, version_order(entry.function.version)))


def _routed(admitted: Iterable[_Entry], point: float) -> list[_Entry]:
    """The version whose share the point falls into; shares of versions that are not admitted go to the others."""
    versions = sorted(admitted, key=lambda entry: version_order(entry.function.version))
    place = sharer([entry.share or 0.0 for entry in versions], point)
    return [] if place is None else [versions[place]]


def _admits(entry: _Entry, holds: Callable[[Any], bool], deps: Any) -> bool:
    admits: Any = holds(deps)
    if not isinstance(admits, bool):
        raise UsageError(f"the filter of function {entry.function.name!r} returned {admits!r}: True or False is right")
    return admits


def _warn(function: Function) -> None:
    if function.deprecated:
        which = f"{function.name}@{function.version}".removesuffix("@")
        warnings.warn(f"function {which} is deprecated: {function.deprecated}", DeprecationWarning, stacklevel=3)
