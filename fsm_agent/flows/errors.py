"""The error for a wrong flow.  The errors from a run are in `fsm_agent.flows.run`."""

from __future__ import annotations

from fsm_agent.errors import UsageError


class FlowError(UsageError):
    """The definition of a flow is wrong.  The message names the row or the state and says what was expected.

    Examples:
        >>> @execute
        ... def greet(name: str) -> str:
        ...     return name
        >>> try:
        ...     Flow("hello", str, start=greet, rows=[])
        ... except FlowError as error:
        ...     print(str(error).splitlines()[0][:60])
        flow 'hello': expected a row of greet that takes 'done', got
    """
