"""Resolves the prompts of an agent's calls: adds its functions and output where a prompt has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from fsm_agent.errors import UsageError
from fsm_agent.functions.context import LATER, misfit
from fsm_agent.functions.function import Function
from fsm_agent.functions.toolset import Toolset, functions_of
from fsm_agent.prompts.prompt import Prompt


class PromptResolver:
    """The functions and the output that an agent lends to the prompts of its calls.

    Args:
        functions: The agent's: functions, or sources of them that are asked anew for each call.
        prompt: The agent's own, of tasks that are given in words.
        output: The agent's.
        finalizer: The agent's.

    Attributes:
        is_fixed: True if the functions are the same in every call.
    """

    __slots__ = ("_finalizer", "_functions", "_output", "_prompt", "_resolved", "is_fixed")

    def __init__(self, functions: Iterable[Any], prompt: Prompt, output: Any, finalizer: Any = None) -> None:
        self._functions = tuple(functions)
        self._prompt = prompt
        self._output = output
        self._finalizer = finalizer
        self._resolved = WeakKeyDictionary[Prompt, Prompt]()
        self.is_fixed = prompt.is_fixed and all(isinstance(item, Function) for item in self._functions)

    def offered(self, deps: Any) -> tuple[Function, ...]:
        """Return the functions of one call."""
        if self.is_fixed:
            return self._functions
        found = list[Function]()
        for item in self._functions:
            found += item.for_call(deps) if isinstance(item, Toolset) else functions_of([item])
        return tuple(found)

    def for_call(self, prompt: Prompt, deps: Any) -> Prompt:
        """Return ``prompt`` as resolved for one call."""
        return prompt if self.is_fixed and prompt is self._prompt else self.resolve(prompt, self.offered(deps))

    def resolve(self, prompt: Prompt, offered: tuple[Function, ...]) -> Prompt:
        """Return ``prompt`` with the agent's functions and output where it has none of its own.

        Its MCP servers are asked for their tools.
        """
        prompt = (prompt.unresolved or prompt).for_call()
        if prompt is self._prompt and self.is_fixed:
            return prompt
        has_own = prompt.offers and not prompt.is_borrowed
        functions = prompt.offers if has_own else offered
        output = self._output if prompt.output is str and prompt.parser is None else prompt.output
        finalizer = prompt.finalizer or self._finalizer
        if functions == prompt.offers and output is prompt.output and finalizer is prompt.finalizer:
            return prompt
        resolved = self._resolved.get(prompt)
        if resolved is None or resolved.offers != functions:
            make = prompt.extend if has_own else prompt.borrowing
            resolved = self._resolved[prompt] = make(functions=functions, output=output, finalizer=finalizer)
        return resolved


def check_parser_args(prompt: Prompt, parser_args: Mapping[str, Any]) -> None:
    """Refuse parser arguments that a prompt cannot use.

    Raises:
        UsageError: It has neither a parser nor a type of output, whose validators could use them.
    """
    if prompt.parser is None and prompt.output is str:
        raise UsageError(
            f"parser_args: expected a prompt with a parser or a type as output, got neither, for {parser_args!r:.200}"
        )


def check_needs(deps: object, functions: Iterable[Function]) -> None:
    """Refuse deps with which a function cannot do: None, or of a type of Python's own in place of theirs.

    Raises:
        UsageError: It names the first of these functions.
    """
    if deps is LATER:
        return
    for function in functions:
        if not (kind := function.deps_type):
            continue
        if deps is None:
            raise UsageError(
                f"deps=: expected {kind}, got None: function {function.name!r} takes Context[{kind}]; pass"
                f" deps={kind}(…), or annotate it Context[{kind} | None] if it can do without"
            )
        if misfit(deps, function.deps_class):
            raise UsageError(
                f"deps=: expected {kind}, got {type(deps).__name__}: function {function.name!r} takes Context[{kind}]"
            )


def needs_of(function: Function | None) -> dict[str, Any]:
    """Return what a function of an agent says of deps, if that agent has a function that needs them."""
    return {} if function is None else {"deps_type": function.deps_type, "deps_class": function.deps_class}
