"""Engines that exist: DBOS and Temporal decide who drives a run when, and its journal in Postgres stays the truth.

Each needs its extra: ``pip install 'fsm-agent[dbos]'`` or ``'fsm-agent[temporal]'``.  Most need none of them: the
store is a queue itself, and a `Worker` claims from it.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.engines.engine import Engine as Engine
    from fsm_agent.engines.engine import engine_of as engine_of
else:
    __all__, __getattr__, __dir__ = exports(__name__, {"engine": "Engine engine_of"})
