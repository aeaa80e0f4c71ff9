"""Front ends: runs that many connections follow, and their events in the words of the protocols that pages speak.

`Live` drives runs and lets clients follow them.  A fold, such as `AgUi`, makes what a protocol says of each event.
Only JSON goes in and out, so that no web framework is needed here, and any can be used.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

if TYPE_CHECKING:
    from fsm_agent.fronts.ag_ui import AgUi as AgUi
    from fsm_agent.fronts.ai_sdk import AiSdk as AiSdk
    from fsm_agent.fronts.fold import Fold as Fold
    from fsm_agent.fronts.fold import JsonEvents as JsonEvents
    from fsm_agent.fronts.live import Live as Live
    from fsm_agent.fronts.reading import Asked as Asked
    from fsm_agent.fronts.reading import BadRequest as BadRequest
    from fsm_agent.fronts.reading import read_json as read_json
    from fsm_agent.fronts.server_events import failing as failing
    from fsm_agent.fronts.server_events import sse as sse
    from fsm_agent.fronts.serving import serve as serve
else:
    __all__, __getattr__, __dir__ = exports(
        __name__,
        {
            "ag_ui": "AgUi",
            "ai_sdk": "AiSdk",
            "fold": "Fold JsonEvents",
            "live": "Live",
            "reading": "Asked BadRequest read_json",
            "server_events": "failing sse",
            "serving": "serve",
        },
        needs=dict.fromkeys(("starlette", "uvicorn", "anyio"), "'fsm-agent[serve]'"),
    )
