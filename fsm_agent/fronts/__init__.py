"""Front ends: runs that many connections follow, and their events in the words of the protocols that pages speak.

`Live` drives runs and lets clients follow them.  A fold, such as `AgUi`, makes what a protocol says of each event.
Only JSON goes in and out, so that no web framework is needed here, and any can be used.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.fronts.live import Live as Live
else:
    __all__, __getattr__, __dir__ = exports(__name__, {"live": "Live"})
