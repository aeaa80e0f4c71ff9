"""Web services for agents and flows: runs that many clients follow, a chat page, and an inspector.

`RunFollower` drives runs and lets clients follow them.  An `EventTranslator`, such as `AgUi`, translates events into a
protocol.  Both use plain JSON data, and work with any web framework or without one.  `serve` and `inspector_app` return
Starlette applications, for which the extra ``serve`` is needed.
"""

from typing import TYPE_CHECKING

import fsm_agent.agents  # before its modules; see CONTRIBUTING.md
import fsm_agent.diagrams  # before its modules; see CONTRIBUTING.md
from fsm_agent.web.ag_ui import AgUi
from fsm_agent.web.ai_sdk import AiSdk
from fsm_agent.web.follow import RunFollower
from fsm_agent.web.requests import BadRequest, ClientRequest, read_json
from fsm_agent.web.translate import EventTranslator, JsonEvents, failing, sse

if TYPE_CHECKING:
    from fsm_agent.web.chat_page import serve
    from fsm_agent.web.inspector import inspector_app
else:
    # Only these need Starlette, so programs with other frameworks do not have to install it
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
