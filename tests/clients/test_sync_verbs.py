"""A client with async verbs gets the sync ones: they run in one loop, and cancelling is asyncio's."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from itertools import count

import pytest

from fsm_agent import Agent
from fsm_agent.call import CallFailed, Request
from fsm_agent.clients import SyncVerbs
from fsm_agent.errors import ProviderError
from fsm_agent.messages import Message, Reply, TextDelta
from fsm_agent.testing import Script, function_call

TENANT = contextvars.ContextVar("tenant", default="none")
ASKED = Request(messages=(Message.of("user", "Hello"),))
WITHIN_S = 30


class Own(SyncVerbs):
    """Its replies name the tenant.  When asked to wait, it never returns."""

    name = "own:model"

    def __init__(self, *, waits: bool = False, error: BaseException | None = None, deltas: int = 0) -> None:
        self.waits, self.error, self.deltas, self.made = waits, error, deltas, 0
        self.begun, self.ended = threading.Event(), threading.Event()
        self.homes: list[tuple[asyncio.AbstractEventLoop, threading.Thread]] = []

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        self.homes.append((asyncio.get_running_loop(), threading.current_thread()))
        self.begun.set()
        try:
            if self.waits:
                await asyncio.Event().wait()
            if self.error is not None:
                raise self.error
            return Reply.of(TENANT.get())
        finally:
            self.ended.set()

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> AsyncGenerator[TextDelta | Reply]:
        try:
            for _ in count() if self.deltas < 0 else range(self.deltas):
                self.made += 1
                yield TextDelta("word ")
                await asyncio.sleep(0)
            yield await self.acomplete(request, timeout_s=timeout_s)
        finally:
            self.ended.set()


def test_all_sync_verbs_run_in_one_loop_with_the_callers_context() -> None:
    own = Own(deltas=200)
    token = TENANT.set("seven")
    assert own.complete(ASKED).message.text == "seven"
    *deltas, reply = own.stream(ASKED)
    assert (len(deltas), reply.message.text) == (200, "seven")

    async def inside() -> str:  # as in a notebook, whose loop runs in this thread
        return own.complete(ASKED).message.text

    assert asyncio.run(inside()) == "seven"
    TENANT.reset(token)
    (loop, thread), *others = own.homes
    assert all(other == (loop, thread) for other in others)
    assert thread is not threading.current_thread()
    assert thread.daemon


def test_an_exception_reaches_the_caller_and_leaves_no_garbage() -> None:
    own = Own(error=ProviderError("no"))
    gc.collect()
    gc.disable()
    try:
        for ask in (own.complete, lambda asked: list(own.stream(asked))):
            with pytest.raises(ProviderError, match="no"):
                ask(ASKED)
        own.error = None
        assert not [one for one in gc.get_objects() if isinstance(one, asyncio.Task)]
    finally:
        gc.enable()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_loop_ends_only_its_call(error: type[BaseException]) -> None:
    with pytest.raises(error):
        Own(error=error()).complete(ASKED)
    assert Own().complete(ASKED) == Reply.of(TENANT.get())


@pytest.mark.parametrize("is_collected", [False, True])
def test_a_stream_that_is_left_ends_its_request(is_collected: bool) -> None:
    own = Own(deltas=-1)
    parts = own.stream(ASKED)
    next(parts)
    if is_collected:
        around = [parts]
        around.append(around)
        del parts, around
        gc.collect()
        assert own.ended.wait(WITHIN_S)
    else:
        parts.close()
        assert own.ended.is_set()


def test_a_stream_is_ahead_by_no_more_than_a_bounded_number_of_parts() -> None:
    own = Own(deltas=10_000)
    parts = own.stream(ASKED)
    for _ in range(300):
        next(parts)
    assert own.made <= 300 + 2 * 64
    parts.close()


@pytest.mark.parametrize("verb", ["complete", "stream", "call"])
def test_a_function_that_is_left_behind_ends_its_request_and_hears_no_exception_that_it_might_handle(verb: str) -> None:
    own, raised, left = Own(waits=True), list[BaseException](), threading.Event()
    verbs: dict[str, Callable[[], object]] = {
        "complete": lambda: own.complete(ASKED),
        "stream": lambda: list(own.stream(ASKED)),
        "call": lambda: Agent(own).call("Ask."),
    }

    def ask() -> str:
        "Ask."
        try:
            return str(verbs[verb]())
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            left.set()

    agent = Agent(Script(function_call("ask"), "Done."), functions=[ask])
    one = agent.prepare("Ask.")

    def drive() -> None:
        with pytest.raises(CallFailed, match="enough"):
            agent.run(one)

    caller = threading.Thread(target=drive, daemon=True)
    caller.start()
    assert own.begun.wait(WITHIN_S)
    one.cancel("enough")
    assert left.wait(WITHIN_S)
    caller.join(WITHIN_S)
    assert own.ended.is_set()
    assert not isinstance(raised[0], Exception)


def test_a_sync_call_in_the_loops_own_thread_works_and_warns(caplog: pytest.LogCaptureFixture) -> None:
    class Around(Own):
        async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
            self.homes.append((asyncio.get_running_loop(), threading.current_thread()))
            return inner.complete(request)

    inner, outer = Own(), Around()
    with caplog.at_level(logging.WARNING, "fsm_agent"):
        assert outer.complete(ASKED) == inner.complete(ASKED)
    assert outer.homes[0] != inner.homes[0]
    assert outer.homes[0] == inner.homes[1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
