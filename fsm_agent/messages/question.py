"""The question of a run that waits for a person or another program."""

from __future__ import annotations

from typing import Any

from fsm_agent._internal.values import Value, from_json


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
        try:
            about = from_json(self.about or "{}", Any)
        except ValueError:
            return ()
        types = about.get("types") if isinstance(about, dict) else None
        return tuple(map(str, types)) if isinstance(types, list) else ()
