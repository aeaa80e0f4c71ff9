"""The answer that a check judges, and its changed form in the record.

A check may change the answer.  The record keeps the changed answer as JSON, from which every driver and every restored
call reads the same output.  So a value that could not be read again is refused before it is taken.
"""

from __future__ import annotations

from functools import partial
from types import NoneType
from typing import Any

import pydantic_core

from fsm_agent._internal.annotations import types_of
from fsm_agent.call.function_limits import governing_prompt
from fsm_agent.call.record import CallRecord, State
from fsm_agent.errors import UsageError
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.validation import shown


class Proposal:
    """An answer that waits for its check.

    Args:
        record: The record of the call, in `State.CHECKING`.
        prompt: The task's prompt.
        output: The answer as the parser returned it.
    """

    __slots__ = ("_before", "_governing", "_r", "output")

    def __init__(self, record: CallRecord, prompt: Prompt[Any], output: Any) -> None:
        self.output = output
        self._r = record
        self._governing = _governing(record, prompt)
        try:
            self._before: str | None = _written(output, self._governing)  # now, as the check may change the object
        except Exception:  # a parser may return what JSON cannot hold
            self._before = None

    def change(self, value: Any, name: str) -> str | None:
        """Return the changed output as JSON; None: it is the same.

        Args:
            value: What the check returned.
            name: Of the check, for errors.

        Raises:
            UsageError: It is no output that could be read again.
        """
        if value is None and self.output is not None and not _may_be_none(self._governing):
            raise UsageError(
                f"what the check {name!r} returned: expected the output, changed or not, got None; raise Retry(why) to"
                " refuse it"
            )
        governing = self._governing
        try:
            is_same = value is self.output or bool(value == self.output)
            if is_same and _written(value, governing) == self._before:
                return None
            document = _kept(value, self._r, governing)
        except Exception as error:  # any, as writing and reading run the type's own code
            if value is self.output and self._before is None:
                return None
            right = "a value of the output's type that JSON can hold"
            raise UsageError(
                f"what the check {name!r} returned: expected {right}, got {shown(value)} ({str(error)[:300]})"
            ) from error
        return document


def checked_output(document: str, record: CallRecord, prompt: Prompt[Any]) -> Any:
    """Return the output of a completed call as its check has changed it."""
    return read_changed(document, record, _governing(record, prompt))


def read_changed(document: str, record: CallRecord, governing: Prompt[Any]) -> Any:
    """Return a changed output from its JSON; that of a parser of the user's is plain data."""
    if governing.parser is not None or governing.expected.is_text:
        return pydantic_core.from_json(document)
    return governing.expected.bare_validated(document, record.parser_args)


def was_in_branch(record: CallRecord) -> bool:
    """Return whether the answer of a call belongs to the exception branch, now or at its end."""
    if record.state is State.CHECKING:
        return bool(record.branch)
    last = record.trace[-1]
    if last.source == State.CHECKING:  # nothing else happens in that state, so the step before is the answer's
        last = record.trace[-2]
    return last.source == State.PARSE_EXCEPTION


def _governing(record: CallRecord, prompt: Prompt[Any]) -> Prompt[Any]:
    return governing_prompt(record, prompt, in_branch=was_in_branch(record))


def _written(value: Any, governing: Prompt[Any]) -> str:
    if governing.parser is not None:
        return pydantic_core.to_json(value).decode()
    return governing.expected.document(value)


def _kept(value: Any, record: CallRecord, governing: Prompt[Any]) -> str:
    """Return a value as JSON that `read_changed` returns unchanged.

    Raises:
        ValueError: It cannot be read again as it is.
    """
    read = partial(read_changed, record=record, governing=governing)
    if governing.parser is None:
        return governing.expected.kept(value, read)
    document = _written(value, governing)
    if (again := read(document)) != value:
        raise ValueError(f"it would be read again as {shown(again)}")
    return document


def _may_be_none(governing: Prompt[Any]) -> bool:
    """Return whether the type of the output names None."""
    kinds = types_of(governing.output)
    return governing.parser is None and (None in kinds or NoneType in kinds)
