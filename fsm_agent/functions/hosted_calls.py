"""Functions that a provider's own tools rely on when they need something from the caller.

A computer's actions are calls to the function `COMPUTER`, which are answered from outside unless the agent has a
function with that name.  If an MCP server needs approval, each call to it is preceded by a call to a function named
after the server's label.  Approving that call lets the provider run the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import from_json, to_json

from fsm_agent.errors import PromptError
from fsm_agent.functions.function import Function
from fsm_agent.messages.hosted_tools import ComputerUse, HostedMCP, HostedTool
from fsm_agent.messages.message import FunctionCall, object_text

COMPUTER = "computer"
ACTION = "action"  # the argument of `COMPUTER` with the name of the action
_HARMLESS = (None, "regular", "allowed")


def answering(tools: Sequence[HostedTool], functions: Sequence[Function], *, has_approver: bool) -> dict[str, Function]:
    """Return the functions that answer calls to the tools, by name.

    Raises:
        PromptError: If a function has the name of an MCP server that needs approval.
    """
    own = {function.name: function for function in functions}
    answers = dict[str, Function]()
    for tool in tools:
        if isinstance(tool, ComputerUse):
            answers[COMPUTER] = _computer(own.get(COMPUTER), has_approver=has_approver)
        elif isinstance(tool, HostedMCP) and tool.require_approval != "never":
            if tool.label in own:
                right = "a name other than the label of an MCP server that needs approval"
                raise PromptError(f"a function: expected {right}, got {tool.label!r}; rename it, or the label")
            answers[tool.label] = Function(
                name=tool.label,
                parameters={"type": "object"},
                call=_approved,
                blocking=False,
                needs_approval=has_approver or tool.require_approval != "auto",
                repeatable=True,
            )
    return answers


def declared(functions: tuple[Function, ...], tools: Sequence[HostedTool]) -> tuple[Function, ...]:
    """Return the functions to declare to the model, without `COMPUTER` if the provider declares it."""
    if any(isinstance(tool, ComputerUse) for tool in tools):
        return tuple([function for function in functions if function.name != COMPUTER])
    return functions


def _computer(own: Function | None, *, has_approver: bool) -> Function:
    """Return the function for computer actions, for which equal calls may be repeated."""
    function = own or Function(name=COMPUTER, parameters={"type": "object"})
    needs: bool | Callable[..., bool] | None = function.needs_approval
    if needs is None:
        needs = True if has_approver else is_flagged
    return replace(function, needs_approval=needs, repeatable=True)


def is_run_as_requested(function: Function) -> bool:
    """Return whether the provider runs the function with the arguments that were requested, which cannot be changed."""
    return function.call is _approved


def as_action(call: FunctionCall) -> FunctionCall:
    """Convert a call to a provider's own computer function into a call to `COMPUTER`.

    A call with invalid arguments is returned unchanged.
    """
    try:
        arguments = from_json(object_text(call.arguments_json))
    except ValueError:
        return call
    if not isinstance(arguments, dict):
        return call
    text = to_json({ACTION: call.name, **arguments}).decode()
    return call.changed(name=COMPUTER, arguments_json=text)


def action_of(call: FunctionCall) -> tuple[str, dict[str, Any]]:
    """Return `(name, arguments)` of the call that `as_action` converted."""
    arguments = call.arguments
    if call.name != COMPUTER or not isinstance(arguments.get(ACTION), str):
        return call.name, arguments
    return arguments.pop(ACTION), arguments


def is_flagged(call: FunctionCall) -> bool:
    """Return whether the provider wants a person to confirm this computer action."""
    arguments = call.arguments
    decision = arguments.get("safety_decision")
    word = decision.get("decision") if isinstance(decision, Mapping) else decision
    return bool(arguments.get("pending_safety_checks")) or word not in _HARMLESS


def _approved(**_: Any) -> str:
    return "approved"
