"""Server-sent events: the lines in which a stream goes to a browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from fsm_agent._internal.redaction import mask_keys
from fsm_agent.errors import FsmAgentError
from fsm_agent.fronts.fold import Data, Fold
from fsm_agent.messages.event import Event
from fsm_agent.runtime.log import LOG

ALIVE_S = 15.0  # after which a comment is sent, so that no proxy takes a quiet connection for a dead one


async def sse(
    items: AsyncGenerator[tuple[int, Event]], fold: Fold, *, end: str = "", alive_s: float = ALIVE_S
) -> AsyncGenerator[str]:
    r"""Yield what a fold makes of the events of a run, as server-sent events; each has its number of steps as its id.

    Errors become events of the protocol, those of bugs without details.

    Args:
        items: What `Live.follow` yields; it is closed when the client goes away.
        fold: The fold.
        end: What comes last, such as ``data: [DONE]``.
        alive_s: After how many quiet seconds a comment is sent.

    Examples:
        >>> async def main():
        ...     async with Live(Agent(Script("Hi."), name="host")) as live:
        ...         run = await live.begin("Hello")
        ...         return [line async for line in sse(live.follow(run), AgUi("t1", "r1"))]
        >>> import asyncio
        >>> asyncio.run(main())[0]
        'data: {"type": "RUN_STARTED", "threadId": "t1", "runId": "r1", "protocolVersion": "1.0"}\n\n'
    """
    for data in fold.begin():
        yield _lines(data)
    coming: asyncio.Task[tuple[int, Event]] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(items))
            await asyncio.wait([coming], timeout=alive_s)
            if not coming.done():
                yield ": alive\n\n"
                continue
            steps, event = coming.result()
            coming = None
            for data in fold.take(event):
                yield f"id: {steps}\n{_lines(data)}"
    except StopAsyncIteration:
        pass
    except Exception as error:
        for data in fold.failed(*told_error(error)):
            yield _lines(data)
    finally:
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait([coming])
        await items.aclose()
    if end:
        yield end


async def failing(error: Exception) -> AsyncGenerator[tuple[int, Event]]:
    r"""Raise an error in place of the events, for `sse` to tell.

    Examples:
        >>> async def main():
        ...     told = sse(failing(BadRequest("no name", "bad_name")), AgUi("t1", "r1"))
        ...     return [line async for line in told][-1]
        >>> import asyncio
        >>> asyncio.run(main())
        'data: {"type": "RUN_ERROR", "message": "no name", "code": "bad_name"}\n\n'
    """
    raise error
    yield  # makes it a generator


def told_error(error: Exception) -> tuple[str, str]:
    """Return the text and the code of an error for a client; of a bug, nothing but that there is one."""
    if isinstance(error, FsmAgentError):
        return mask_keys(str(error)), getattr(error, "code", type(error).__name__)
    LOG.error("a stream failed", exc_info=error)
    return "an internal error; see the log of the server", "InternalError"


def _lines(data: Data | Any) -> str:
    return f"data: {json.dumps(data)}\n\n"
