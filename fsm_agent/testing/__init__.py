"""Doubles for tests of agents: a model with scripted replies, and a clock that moves only on a sleep.

`script` holds them; the pytest plugin is beside it.  Nothing in the package needs any of it to run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = [
    "Delayed",
    "Entry",
    "FakeClock",
    "Pieces",
    "Script",
    "ScriptError",
    "call",
    "model_requests",
    "no_model_requests",
]

if TYPE_CHECKING:
    from fsm_agent.testing.script import Delayed as Delayed
    from fsm_agent.testing.script import Entry as Entry
    from fsm_agent.testing.script import FakeClock as FakeClock
    from fsm_agent.testing.script import Pieces as Pieces
    from fsm_agent.testing.script import Script as Script
    from fsm_agent.testing.script import ScriptError as ScriptError
    from fsm_agent.testing.script import call as call
    from fsm_agent.testing.script import model_requests as model_requests
    from fsm_agent.testing.script import no_model_requests as no_model_requests


if not TYPE_CHECKING:  # a type checker that saw it would take any name

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.script"), name)
        globals()[name] = value
        return value
