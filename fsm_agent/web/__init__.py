"""Web pages and services: runs that many connections follow, the chat page, the inspector of a store.

`RunFollower` drives runs and lets clients follow them.  An `EventTranslator`, such as `AgUi`, says each event in the
words of a protocol.  Only JSON goes in and out, so that no web framework is needed for them, and any can be used.
`serve` and `inspector_app` are applications of Starlette, which comes with an extra.
"""

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports
from fsm_agent.web.ag_ui import AgUi as AgUi
from fsm_agent.web.ai_sdk import AiSdk as AiSdk
from fsm_agent.web.follow import RunFollower as RunFollower
from fsm_agent.web.requests import BadRequest as BadRequest
from fsm_agent.web.requests import ClientRequest as ClientRequest
from fsm_agent.web.requests import read_json as read_json
from fsm_agent.web.translate import EventTranslator as EventTranslator
from fsm_agent.web.translate import JsonEvents as JsonEvents
from fsm_agent.web.translate import failing as failing
from fsm_agent.web.translate import sse as sse

if TYPE_CHECKING:
    from fsm_agent.web.chat_page import serve as serve
    from fsm_agent.web.inspector import inspector_app as inspector_app
else:  # these need the extra
    _, __getattr__, __dir__ = exports(
        __name__,
        {"chat_page": "serve", "inspector": "inspector_app"},
        needs=dict.fromkeys(("starlette", "uvicorn", "anyio"), "'fsm-agent[serve]'"),
    )

__all__ = [
    "AgUi",
    "AiSdk",
    "BadRequest",
    "ClientRequest",
    "EventTranslator",
    "JsonEvents",
    "RunFollower",
    "failing",
    "inspector_app",
    "read_json",
    "serve",
    "sse",
]
