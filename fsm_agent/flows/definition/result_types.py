"""The types of the output of an agent call, for a state that gives the whole result of it.

A result is written as the record of its call.  It is read with the prompt of the state, because JSON cannot hold code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from fsm_agent._internal.pydantic_schema import schema_of
from fsm_agent._internal.values import from_json, to_json
from fsm_agent.call.call import call_class
from fsm_agent.call.invariants import inconsistency
from fsm_agent.call.record import CallRecord, State
from fsm_agent.call.result import CallResult
from fsm_agent.errors import OutcomeError
from fsm_agent.flows.definition.answer_types import AnswerTypes
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import shown

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

_MOST_SHOWN = 500  # characters of a problem


class ResultTypes(AnswerTypes):
    """The types of the output of an agent call whose whole result is given.  Rows tell the outputs apart.

    Args:
        state: The name of the state, for errors.
        types: The types of the output.
        prompt: Returns the prompt with which results are read.
    """

    def __init__(self, state: str, types: Sequence[Any], prompt: Callable[[], Prompt[Any]]) -> None:
        super().__init__(state, types)
        self._prompt = prompt

    def __repr__(self) -> str:
        return f"CallResult[{super().__repr__()}]"

    @cached_property
    def provided(self) -> tuple[Any, ...]:
        return (Annotated[CallResult[Any], self],)

    def case_of(self, value: Any) -> Any:
        return super().case_of(self._output(value))

    def takes(self, value: Any) -> bool:
        """Return whether a value may be the result of such a call."""
        try:
            self.dump(value)
        except OutcomeError:
            return False
        return True

    def dump(self, value: Any) -> str:
        super().dump(self._output(value))  # or the output has another type
        try:
            text = to_json(value.record)
        except ValueError as error:
            raise self._refused(value, error) from None
        self.load(text)
        return text

    def load(self, text: str) -> CallResult[Any]:
        try:
            record: CallRecord = from_json(text, CallRecord)
            if problem := inconsistency(record):
                raise ValueError(problem)
            prompt = self._prompt()
            result = CallResult(call_class(prompt)(record, prompt))
            super().dump(self._output(result))
        except ValueError as error:
            raise self._refused(text, error) from None
        return result

    def _output(self, value: Any) -> Any:
        """Return the output of a result.

        Raises:
            OutcomeError: It is not a result, or the call gave no output.
        """
        if not isinstance(value, CallResult):
            raise OutcomeError(f"{self.state}: expected {self!r}, got {shown(value)}")
        if value.state is not State.COMPLETED:
            raise OutcomeError(f"{self.state}: expected the result of an answered call, got one in {value.state}")
        return value.call.output

    def _refused(self, value: object, error: Exception) -> OutcomeError:
        problem = f"{self.state}: expected JSON of {self!r}, got {shown(value)}"
        return OutcomeError(f"{problem}: {str(error)[:_MOST_SHOWN]}")

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return the schema of a result, for states whose members give one."""
        return schema_of(CallResult, self.load, self.dump)
