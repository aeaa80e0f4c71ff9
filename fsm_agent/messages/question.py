"""The question of a run that waits for a person or another program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsm_agent._internal.values import Value, from_json, to_json


class Question(Value, frozen=True):
    """An effect that waits for the answer of a person or another program.

    Examples:
        >>> Question("ask:1.0", "approval", answers=("Approved", "Denied")).kind
        'approval'
    """

    key: str  # of the effect
    kind: str  # "approval", "result" (of a function without a callable), "doubt" (whether it ran), "answer" or "stuck"
    about: str = ""  # JSON, for people
    answers: tuple[str, ...] = ()  # the kinds of outcomes that answer it
    schema: str = ""  # JSON Schema of the value in the answer: new arguments, or what a state takes; empty: none

    @property
    def types(self) -> tuple[str, ...]:
        """The names of the types that a state of a flow takes, as JSON; empty: it asks for something else."""
        types = self._about.get("types")
        return tuple(map(str, types)) if isinstance(types, list) else ()

    @property
    def until_s(self) -> float | None:
        """Unix time until which it can be answered, as of when the run was last written; None: there is no limit."""
        until_s = self._about.get("until_s")
        return float(until_s) if isinstance(until_s, int | float) else None

    def until(self, at_s: float | None) -> Question:
        """Return the question with the time until which it can be answered; None: there is no limit."""
        about = self._about
        return self.changed(about=to_json({**about, "until_s": at_s})) if about and at_s is not None else self

    @property
    def _about(self) -> Mapping[str, Any]:
        try:
            about = from_json(self.about or "{}", Any)
        except ValueError:
            return {}
        return about if isinstance(about, dict) else {}
