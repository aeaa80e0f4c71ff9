"""What a guard is given: the data and what came, or the data alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fsm_agent.flows.errors import FlowError


def takes_answer(guard: Callable[..., Any], answer: str = "answer") -> bool:
    """Return whether a guard is given what came as well as the data.

    A function of ``*args`` is.  A default of the second parameter would leave it open, and what was meant as a constant
    would be the answer: it is refused.

    Args:
        guard: The guard.
        answer: What came, for the error.

    Raises:
        FlowError: It says what was expected, and what the guard takes.
    """
    name, right = getattr(guard, "__name__", repr(guard)), f"the parameters (data, {answer}) or (data)"
    try:
        signature = inspect.signature(guard, follow_wrapped=False)  # that of a partial function is its own
        if _is_open(signature):  # as that of a decorator's function, behind which is what it decorates
            signature = inspect.signature(guard)
    except (TypeError, ValueError):  # written in C
        raise FlowError(f"{name}: expected {right}, got a function that does not tell its parameters") from None
    takes_both, takes_data = _takes(signature, 2), _takes(signature, 1)
    if takes_both and takes_data and not _is_open(signature):
        raise FlowError(f"{name}: expected {right}, got {_signature_text(signature)}, which fits both")
    if not (takes_both or takes_data):
        raise FlowError(f"{name}: expected {right}, got {_signature_text(signature)}")
    return takes_both


def check_parameters(here: str, function: Callable[..., Any], *takes: str) -> None:
    """Refuse a function that cannot be called with as many values.

    Raises:
        FlowError: It says what was expected, and what the function takes.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C, say
        return
    if not _takes(signature, len(takes)):
        name = getattr(function, "__name__", repr(function))
        right = f"the parameters ({', '.join(takes)})"
        raise FlowError(f"{here}: {name}: expected {right}, got {_signature_text(signature)}")


def _is_open(signature: inspect.Signature) -> bool:
    """Return whether it takes any number of values."""
    return any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _signature_text(signature: inspect.Signature) -> str:
    """Return the parameters, without annotations."""
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=parameters, return_annotation=signature.empty))
