"""Errors of flows: in their definition, and at the end of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsm_agent.call.process import wakes_at_s
from fsm_agent.errors import FsmAgentError, UsageError

if TYPE_CHECKING:  # what imports this module
    from fsm_agent.flows.record import FlowResult
    from fsm_agent.flows.run import FlowRun


class FlowError(UsageError):
    """A flow is wrong.  The message names the row or the state and says what was expected.

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


class _OfRun(FsmAgentError):
    def __init__(self, message: str, *, run: FlowRun[Any]) -> None:
        super().__init__(message)
        self.run = run

    @property
    def result(self) -> FlowResult[Any]:
        """The result so far."""
        return self.run.result_so_far


class FlowFailed(_OfRun):
    """A flow ended in a failure.  ``run`` is the `FlowRun`; ``run.record.ending`` says why it failed.

    Examples:
        >>> @execute
        ... def divide(n: int) -> int:
        ...     return 1 // n
        >>> try:
        ...     Flow("dividing", int, start=divide, rows=[divide.done(end("over"))]).call(0)
        ... except FlowFailed as error:
        ...     print(error.run.record.ending.detail)
        raised: ZeroDivisionError: integer division or modulo by zero
    """


class FlowSuspended(_OfRun):
    """A flow waits for a person who is not here, or for a distant time.  ``run.effects`` says what it waits for.

    Examples:
        >>> @wait(bool)
        ... def review(text: str) -> str:
        ...     return text
        >>> letters = Flow("letters", str, start=review, rows=[review.done(end("over"))])
        >>> try:
        ...     letters.call("Dear Ada")
        ... except FlowSuspended as waiting:
        ...     waiting.run.give(review, True)
        ...     print(letters.run(waiting.run).state)
        over
    """

    @property
    def wake_at_s(self) -> float | None:
        """The Unix time at which the run continues without an answer, or None if it needs one."""
        return wakes_at_s(self.run)
