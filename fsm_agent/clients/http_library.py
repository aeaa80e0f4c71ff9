"""The HTTP library: httpx, and the transport under it.

No other module imports either of them, so that a successor of httpx takes its place here.  Both are loaded at first
use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsm_agent._internal.lazy_import import deferred

if TYPE_CHECKING:
    import httpx
    import httpx_aiohttp
else:
    httpx, httpx_aiohttp = deferred("httpx"), deferred("httpx_aiohttp")

__all__ = ["httpx", "httpx_aiohttp"]
