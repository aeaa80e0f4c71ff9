"""Web pages and services: runs that many connections follow, the chat page, the inspector of a store.

`RunFollower` drives runs and lets clients follow them.  An `EventTranslator`, such as `AgUi`, translates each event
into a protocol.  Both take and return JSON data, so they work with any web framework or without one.
`serve` and `inspector_app` return applications of Starlette, which comes with an extra.
"""

from typing import TYPE_CHECKING

from fsm_agent.web.ag_ui import AgUi
from fsm_agent.web.ai_sdk import AiSdk
from fsm_agent.web.follow import RunFollower
from fsm_agent.web.requests import BadRequest, ClientRequest, read_json
from fsm_agent.web.translate import EventTranslator, JsonEvents, failing, sse

if TYPE_CHECKING:
    from fsm_agent.web.chat_page import serve
    from fsm_agent.web.inspector import inspector_app
else:
    # The applications are Starlette's; the events and requests above do without it, in a program of any framework.
    def __getattr__(name: str) -> object:
        from importlib import import_module

        home = {"serve": "chat_page", "inspector_app": "inspector"}.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        try:
            return getattr(import_module(f"{__name__}.{home}"), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
                raise
            needs = f"{name} needs {error.name}; run pip install 'fsm-agent[serve]'"
            raise ImportError(needs, name=error.name) from error


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
