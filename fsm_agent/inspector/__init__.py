"""A web page of the runs in a store: what each did, step by step, and what it asks; live, and in any browser.

The server writes HTML, and one small script lights what is there already.  It reads journals, without the code of an
agent; what a form does is what the commands ``fsm-agent runs …`` do.  The layers below know nothing of it, and its
libraries come with an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsm_agent._internal.exports import exports

NEEDS = dict.fromkeys(("starlette", "uvicorn"), "'fsm-agent[inspect]'")

if TYPE_CHECKING:
    from fsm_agent.inspector.app import inspector_app as inspector_app
else:
    __all__, __getattr__, __dir__ = exports(__name__, {"app": "inspector_app"}, needs=NEEDS)
