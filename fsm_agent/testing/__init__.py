"""Doubles for tests of agents, and conformance suites for codecs, clients and stores of one's own.

`script` holds a model with scripted replies and a clock that moves only on a sleep; the pytest plugin is beside it.
`explore` walks every way through a flow.
Nothing in the package needs any of it to run.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

_MODULES = {
    "client_conformance": ("ClientConformance", "Endless"),
    "codec_conformance": ("CodecConformance",),
    "exploration": ("Explored", "explore"),
    "script": (
        "Delayed",
        "Entry",
        "FakeClock",
        "Pieces",
        "Script",
        "ScriptError",
        "call",
        "model_requests",
        "no_model_requests",
        "token_reply",
    ),
    "journal_conformance": ("JournalConformance",),
    "lease_conformance": ("LeaseConformance",),
    "store_conformance": ("StoreConformance",),
    "streams": ("framed",),
    "turns": ("Turn", "TurnPart"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)

if TYPE_CHECKING:
    from fsm_agent.testing.client_conformance import ClientConformance as ClientConformance
    from fsm_agent.testing.client_conformance import Endless as Endless
    from fsm_agent.testing.codec_conformance import CodecConformance as CodecConformance
    from fsm_agent.testing.exploration import Explored as Explored
    from fsm_agent.testing.exploration import explore as explore
    from fsm_agent.testing.journal_conformance import JournalConformance as JournalConformance
    from fsm_agent.testing.lease_conformance import LeaseConformance as LeaseConformance
    from fsm_agent.testing.script import Delayed as Delayed
    from fsm_agent.testing.script import Entry as Entry
    from fsm_agent.testing.script import FakeClock as FakeClock
    from fsm_agent.testing.script import Pieces as Pieces
    from fsm_agent.testing.script import Script as Script
    from fsm_agent.testing.script import ScriptError as ScriptError
    from fsm_agent.testing.script import call as call
    from fsm_agent.testing.script import model_requests as model_requests
    from fsm_agent.testing.script import no_model_requests as no_model_requests
    from fsm_agent.testing.script import token_reply as token_reply
    from fsm_agent.testing.store_conformance import StoreConformance as StoreConformance
    from fsm_agent.testing.streams import framed as framed
    from fsm_agent.testing.turns import Turn as Turn
    from fsm_agent.testing.turns import TurnPart as TurnPart


if not TYPE_CHECKING:  # a type checker that saw it would take any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        try:
            module = import_module(f"{__name__}.{_HOME[name]}")
        except ModuleNotFoundError as error:
            if error.name not in ("hypothesis", "pytest"):
                raise
            raise ImportError(f"{name} needs {error.name}: pip install {error.name}", name=error.name) from error
        value = getattr(module, name)
        globals()[name] = value
        return value
