"""A chat page for an agent or a flow, as an ASGI application that also serves AG-UI clients.

The name of a conversation's run in the store begins with the user's name, so users see only their own conversations.
"""

from __future__ import annotations

import asyncio
import html
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from inspect import isawaitable
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from fsm_agent._internal.structs import is_whole
from fsm_agent.agents.runnable import Runnable
from fsm_agent.call.journal import header_of
from fsm_agent.errors import FsmAgentError
from fsm_agent.functions.context import GivenDeps
from fsm_agent.messages.message import Image, Message
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.store.errors import NotAsked, RunUnknown
from fsm_agent.store.listing import each_listed
from fsm_agent.store.store import Run, RunFilter, Store
from fsm_agent.store.turns import turns_back
from fsm_agent.validation import require
from fsm_agent.web.ag_ui import HEADERS, AgUi
from fsm_agent.web.auth import LOOPBACK, OriginCheck
from fsm_agent.web.follow import RunFollower
from fsm_agent.web.requests import MAX_BODY, BadRequest, check_name, read_body, read_json
from fsm_agent.web.translate import describe_error, failing, sse

UserOf: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]
AT_ONCE = 16  # active runs of one user
MAX_TURNS = 200  # turns shown of a conversation
MAX_CONVERSATIONS = 200  # conversations listed for a user
_HERE = Path(__file__).parent


def serve(
    runnable: Runnable,
    *,
    user: UserOf | None = None,
    hosts: Collection[str] | None = None,
    task: Callable[[Message], Any] | None = None,
    deps: GivenDeps[Any] = None,
    at_once: int = AT_ONCE,
    drives: bool = True,
    service: str = "live",
    prompts: Iterable[Prompt[Any]] = (),
) -> Starlette:
    """Return an application with a chat page for an agent or a flow.

    The page shows conversations, approvals, forms and images.  Users see only their own conversations, and their
    answers are recorded under their names.  ``POST agui`` serves AG-UI clients.

    Without ``user``, there is a single user, and the application responds only to requests whose Host names this
    machine.  In that case, do not let other machines connect.

    Args:
        runnable: The agent or flow.  With a store, conversations survive restarts.
        user: A function or coroutine function that returns the user who sends a request, according to your login, or
            None to refuse the request.
        hosts: The host names of the service.  None allows any name if ``user`` is given; otherwise, only names for this
            machine.
        task: A function that converts a message to the task, or to a flow's data.  The default is described in
            `RunFollower.take`.
        deps: The ``deps`` in the `Context` that functions get: a value, or a function that makes one for each run,
            given the agent's name, the run's ``extra`` and the user who began the run.
        at_once: The maximum number of active runs per user, across all processes.  Further runs are refused.
        drives: See `RunFollower`.
        service: See `RunFollower`.
        prompts: See `RunFollower`.

    Examples:
        >>> app = serve(Agent(Script("Hi."), name="host"))      # uvicorn module:app
        >>> [route.path for route in app.routes][:2]
        ['/', '/static']
    """
    require("at_once", at_once, is_whole(at_once, 1), "a whole number of at least 1")
    live = RunFollower(runnable, drives=drives, service=service, deps=deps, prompts=prompts)
    pages = _Pages(live, user, task, at_once)
    known = LOOPBACK if hosts is None and user is None else hosts

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with live:
            yield

    routes = [
        Route("/", pages.page),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
        Route("/agui", pages.ask, methods=["POST"]),
        Route("/conversations", pages.conversations),
        Route("/conversations/{name:path}/cancel", pages.cancel, methods=["POST"]),
        Route("/conversations/{name:path}", pages.conversation),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(OriginCheck, hosts=known)],
        exception_handlers=dict.fromkeys(
            (BadRequest, NotAsked, RunUnknown), _respond_to_error
        ),  # others are the service's
    )
    app.state.live = live
    return app


class _Pages:
    def __init__(
        self, live: RunFollower, user: UserOf | None, task: Callable[[Message], Any] | None, at_once: int = AT_ONCE
    ) -> None:
        self._live, self._user, self._task, self._at_once = live, user, task, at_once
        self._locks = WeakValueDictionary[str, asyncio.Lock]()  # by user
        self._html = (
            (_HERE / "templates" / "chat.html").read_text("utf-8").replace("TITLE", html.escape(live.runnable.name))
        )

    async def _who(self, request: Request) -> str:
        """Return the user, or refuse a request whose user is unknown."""
        found = "" if self._user is None else self._user(request)
        who = await found if isawaitable(found) else found
        if who is None or (self._user is not None and not who):
            raise HTTPException(401, "expected a logged-in user, got none")
        return str(who)

    async def page(self, request: Request) -> Response:
        await self._who(request)
        return Response(self._html, media_type="text/html")

    async def ask(self, request: Request) -> Response:
        """Begin a run or answer its questions, and return its stream."""
        who = await self._who(request)
        asked = AgUi.read(read_json(await read_body(request, MAX_BODY)))
        translator = AgUi(asked.conversation, asked.run, asked.tools)
        try:
            kept = asked._replace(conversation=_kept(who, asked.conversation))
            async with self._locks.setdefault(who, asyncio.Lock()):  # no other run begins between count and start
                if kept.message is not None and await to_thread.run_sync(self._is_full, who, self._live.run_of(kept)):
                    problem = {"error": f"{self._at_once} answers are still running; wait for one", "code": "too_many"}
                    return JSONResponse(problem, 429)
                run, after = await self._live.take(kept, by=who, task=self._task)
        except FsmAgentError as error:
            return _stream(sse(failing(error), translator))
        return _stream(sse(self._live.follow(run, after=after), translator))

    async def conversations(self, request: Request) -> Response:
        """Return the user's newest conversations, and whether there are more."""
        who = await self._who(request)
        found, has_more = await to_thread.run_sync(self._conversations_of, who)
        return JSONResponse(found, headers={"x-has-more": "true"} if has_more else None)

    async def conversation(self, request: Request) -> Response:
        """Return all turns of a conversation as one stream, in which the newest turn is live."""
        who = await self._who(request)
        name = request.path_params["name"]
        turns = await to_thread.run_sync(self._turns, _kept(who, check_name("conversation", name)))
        if not turns:
            return JSONResponse({"error": f"unknown conversation {name!r}", "code": "unknown_conversation"}, 404)
        return _stream(self._told(name, turns))

    async def cancel(self, request: Request) -> Response:
        """Cancel the newest run of a conversation."""
        who = await self._who(request)
        run = await self._live.newest(_kept(who, request.path_params["name"]))
        if run is None:
            raise NotAsked("this conversation does not exist")
        await self._live.cancel(run, "cancelled by the user", by=who)
        return JSONResponse({})

    def _is_full(self, who: str, run: str | None) -> bool:
        """Return whether this run would exceed the user's limit on active runs."""
        which: RunFilter = {"agent": self._live.runnable.name, "prefix": _kept(who, ""), "ended": False}
        which["due_before"] = time.time()  # runs that wait for a person or a set time cost nothing
        store = self._live.runs.store
        return len(store.list(limit=self._at_once, **which)) == self._at_once and not (run and _exists(store, run))

    def _conversations_of(self, who: str) -> tuple[list[dict[str, Any]], bool]:
        """Return `(conversations, more)`: a user's newest conversations, and whether there are more."""
        of = self._live.runnable.name
        found: dict[str, dict[str, Any]] = {}
        for row in each_listed(self._live.runs.store, agent=of, prefix=_kept(who, ""), at_a_time=500):
            name = _shown(who, row.id, self._live.has_conversations)
            if name and name not in found and len(found) == MAX_CONVERSATIONS:
                return [*found.values()], True
            if name:
                asks = [question.key for question in row.waits]
                about = {"name": name, "title": row.title or name, "asks": asks, "ended": row.is_ended}
                about |= {"at_s": row.updated_s}
                found.setdefault(name, about)["title"] = row.title or name  # the title of the first turn
        return [*found.values()], False

    def _turns(self, kept: str) -> list[Run]:
        """Return the newest runs in a conversation in order, at most one more than `MAX_TURNS`."""
        store = self._live.runs.store
        if self._live.has_conversations:
            runs = [run for run, _ in islice(turns_back(self._live.runs.journals, kept), MAX_TURNS + 1)]
        else:
            runs = [store.get(kept)] if _exists(store, kept) else []
        return runs[::-1]

    async def _told(self, name: str, turns: list[Run]) -> AsyncGenerator[str]:
        if len(turns) > MAX_TURNS:
            yield _custom_event("left_out", {"shown": MAX_TURNS})
        for run in turns[-MAX_TURNS:]:
            load = partial(self._live.runs.store.load, run.id, after=None)
            loaded = await to_thread.run_sync(load)  # not read earlier, because it may be large
            yield _custom_event("said", _said(loaded.header))
            async for line in sse(self._live.follow(run.id), AgUi(name, run.id)):
                yield line


def _kept(who: str, conversation: str) -> str:
    """Return the name of a user's conversation in the store.  It begins with the user's name."""
    return f"{quote(who, safe='@.')}/{conversation}"


def _exists(store: Store, run: str) -> bool:
    try:
        store.get(run)
    except RunUnknown:
        return False
    return True


def _shown(who: str, run: str, has_conversations: bool) -> str:
    """Return the user's own name for a run's conversation, or "" if the run belongs to another user."""
    start = _kept(who, "")
    rest = run[len(start) :] if run.startswith(start) else ""
    return rest.rpartition(":")[0] if has_conversations else rest


def _said(header: str) -> dict[str, Any]:
    """Return the user's message that began a run: its text and images."""
    seed = json.loads(bytes(header_of(header).seed))
    if "dialog" not in seed:
        return {"text": json.dumps(seed.get("data")), "pictures": []}
    message: Message = msgspec.convert(seed["dialog"][-1], Message)
    images = [part for part in message.parts if isinstance(part, Image) and part.data is not None]
    return {"text": message.text, "pictures": [image.data_url() for image in images]}


def _custom_event(name: str, value: Any) -> str:
    return f"data: {json.dumps({'type': 'CUSTOM', 'name': name, 'value': value})}\n\n"


def _stream(lines: AsyncGenerator[str]) -> Response:
    return StreamingResponse(lines, media_type="text/event-stream", headers=HEADERS)


def _respond_to_error(request: Request, error: Exception) -> Response:
    text, code = describe_error(error)
    status = 413 if code == "too_large" else 400 if isinstance(error, BadRequest) else 409
    return JSONResponse({"error": text, "code": code}, status)
