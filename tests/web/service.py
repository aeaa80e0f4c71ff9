"""A service for the clients of protocols: an agent and a flow with a store, an agent without one."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from served import Letter, desk, letters, reply_to
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fsm_agent import Agent, FsmAgentError, function
from fsm_agent.testing import Script, function_call
from fsm_agent.web import AgUi, AiSdk, RunFollower, failing, read_json, sse

HEADERS = {"x-vercel-ai-ui-message-stream": "v1", "cache-control": "no-store"}  # which useChat asks for
END = "data: [DONE]\n\n"


class Slow:
    """A function that runs until it is released, and its outcome."""

    def __init__(self) -> None:
        self.began, self.go, self.cancelled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.followed = asyncio.Event()  # by a page that was loaded again

    def agent(self, store: Any) -> Agent[Any, str]:
        @function
        async def slow() -> str:
            "Wait."
            self.began.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            finally:
                self.began.clear()
                self.go.clear()
            return "went on"

        def reply(request: Any) -> Any:
            last = request.messages[-1]
            return function_call("slow") if last.role == "user" and last.text == "slow" else reply_to(request)

        agent = desk(store)
        functions: list[Any] = [*agent.functions, slow]
        return agent.changed(model=Script(*[reply] * 1000), functions=functions)


def service(folder: Path, told: dict[str, list[Any]]) -> Starlette:
    """Return the application.

    Args:
        folder: Where its stores are.
        told: What each fold says of some runs, for the clients' own schemas.
    """
    slow = Slow()
    live, plain = RunFollower(slow.agent(str(folder / "runs.db"))), RunFollower(slow.agent(None))
    flow = RunFollower(letters(str(folder / "flows.db")))

    def stream(lines: Any, **headers: str) -> Response:
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    def ag_ui(of: RunFollower) -> Any:
        async def answer(request: Request) -> Response:
            asked = AgUi.read(read_json(await request.body()))
            fold = AgUi(asked.conversation, asked.run)
            try:
                run, after = await of.take(asked, by="tester", task=letter if of is flow else None)
            except FsmAgentError as error:
                return stream(sse(failing(error), fold))
            return stream(sse(of.follow(run, after=after), fold))

        return answer

    def ai_sdk(of: RunFollower) -> Any:
        async def answer(request: Request) -> Response:
            asked = AiSdk.read(read_json(await request.body()))
            try:
                run, after = await of.take(asked, by="tester", task=letter if of is flow else None)
            except FsmAgentError as error:
                return stream(sse(failing(error), AiSdk("m"), end=END), **HEADERS)
            fold = AiSdk(f"{run}-{after}", is_continued=asked.is_continued)
            return stream(sse(of.follow(run, after=after), fold, end=END), **HEADERS)

        return answer

    async def again(request: Request) -> Response:
        run = await live.newest(request.path_params["thread"])
        assert run is not None
        return stream(sse(live.follow(run), AgUi(request.path_params["thread"], run)))

    async def reload(request: Request) -> Response:
        run = await live.newest(request.path_params["thread"])
        if run is None or live.runs.store.get(run).is_ended:
            return Response(status_code=204)
        slow.followed.set()
        return stream(sse(live.follow(run), AiSdk(f"{run}-0"), end=END), **HEADERS)

    async def began(request: Request) -> Response:
        await slow.began.wait()
        return JSONResponse({})

    async def go(request: Request) -> Response:
        await slow.began.wait()
        slow.go.set()
        return JSONResponse({})

    async def followed(request: Request) -> Response:
        await slow.followed.wait()
        return JSONResponse({})

    async def cancel(request: Request) -> Response:
        run = await plain.newest(request.path_params["thread"])
        assert run is not None
        await plain.cancel(run, by="tester")
        await slow.cancelled.wait()
        return JSONResponse(True)

    async def every(request: Request) -> Response:
        return JSONResponse(told[request.path_params["kind"]])

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        async with live, plain, flow:
            yield

    routes = [
        *[
            Route(path, ag_ui(of), methods=["POST"])
            for path, of in (("/agui", live), ("/plain", plain), ("/flow", flow))
        ],
        Route("/chat", ai_sdk(live), methods=["POST"]),
        Route("/plainchat", ai_sdk(plain), methods=["POST"]),
        Route("/flowchat", ai_sdk(flow), methods=["POST"]),
        Route("/agui/{thread}/events", again),
        Route("/chat/{thread}/stream", reload),
        Route("/began", began),
        Route("/followed", followed),
        Route("/go", go),
        Route("/plain/{thread}/cancel", cancel),
        Route("/all/{kind}", every),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def letter(message: Any) -> Letter:
    return Letter(message.text)


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Run an application on loopback; give its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
