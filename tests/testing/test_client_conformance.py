"""Does each check of the suite of clients catch a client that is wrong in just that?"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, ClassVar

import pytest

from fsm_agent.clients import Client
from fsm_agent.errors import AuthFailed, Overloaded, ProviderError, TimedOut, UsageError
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Delta, Reply, TextDelta
from fsm_agent.testing import ClientConformance, Endless
from fsm_agent.testing.client_conformance import ScriptedAnswer

KEY = "key-4711"
ITEMS = AsyncGenerator[Delta | Reply]


class Engine:
    """A model in this OS process."""

    def __init__(self, *answers: ScriptedAnswer) -> None:
        self.answers = list(answers)
        self.under_way = 0

    async def generate(self) -> AsyncGenerator[str]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ProviderError):
            raise answer
        self.under_way += 1
        try:
            if isinstance(answer, Endless):
                yield answer.text
                while True:
                    await asyncio.sleep(0.01)
                    yield "…"
            for piece in answer.partition(" "):
                yield piece
        finally:
            self.under_way -= 1


class EngineClient:
    """A client without a fault."""

    name = "engine:small"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.key = KEY
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<EngineClient {self.name!r}>"

    def __reduce__(self) -> Any:
        raise UsageError("the client cannot be pickled: it holds a key")

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        if self.is_closed:
            raise UsageError("the client is closed")
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        pieces: list[str] = []
        async with aclosing(self.engine.generate()) as generated:
            while True:
                try:
                    async with asyncio.timeout(None if end_s is None else end_s - time.monotonic()):
                        piece = await anext(generated, None)
                except TimeoutError:
                    raise TimedOut("too late") from None
                except ProviderError as error:
                    raise self.masked(error) from None
                if piece is None:
                    break
                pieces.append(piece)
                yield TextDelta(piece)
        yield Reply.of("".join(pieces))

    def masked(self, error: ProviderError) -> ProviderError:
        error.message = error.message.replace(self.key, "***")
        error.args = (error.message,)
        return error

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        async with aclosing(self.astream(request, timeout_s=timeout_s)) as items:
            *_, reply = [item async for item in items]
        assert isinstance(reply, Reply)
        return reply

    def stream(self, request: Request, *, timeout_s: float | None = None) -> Generator[Delta | Reply]:
        items = self.astream(request, timeout_s=timeout_s)

        async def step() -> Delta | Reply | None:
            return await anext(items, None)

        with asyncio.Runner() as runner:
            try:
                while (item := runner.run(step())) is not None:
                    yield item
            finally:
                runner.run(items.aclose())

    def complete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        *_, reply = self.stream(request, timeout_s=timeout_s)
        assert isinstance(reply, Reply)
        return reply

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.close()


class EngineSuite(ClientConformance):
    secret = KEY
    make: Callable[[Engine], Client] = EngineClient

    @contextmanager
    def serving(self, *answers: ScriptedAnswer) -> Iterator[Client]:
        self.engine = Engine(*answers)
        yield type(self).make(self.engine)

    def under_way(self, client: Client) -> int:
        return self.engine.under_way


@pytest.mark.system
class TestEngine(EngineSuite):
    """Without a fault, nothing is found."""


class HasNoName(EngineClient):
    name = ""


class EndsOtherwiseUnderAsyncio(EngineClient):
    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        return (await super().acomplete(request, timeout_s=timeout_s)).changed(finish="length")


class StreamsNoDeltas(EngineClient):
    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        yield TextDelta("")
        async for item in super().astream(request, timeout_s=timeout_s):
            if isinstance(item, Reply):
                yield item


class StreamsNoReply(EngineClient):
    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        async for item in super().astream(request, timeout_s=timeout_s):
            if not isinstance(item, Reply):
                yield item


class KnowsOneError(EngineClient):
    def masked(self, error: ProviderError) -> ProviderError:
        return ProviderError(error.message, status=error.status)


class TriesAgain(EngineClient):
    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        try:
            async for item in super().astream(request, timeout_s=timeout_s):
                yield item
        except ProviderError:
            async for item in super().astream(request, timeout_s=timeout_s):
                yield item


class LeavesItsStreamOpen(EngineClient):
    left: ClassVar[list[Any]] = []

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        generated = self.engine.generate()
        self.left.append(generated)
        yield TextDelta(await anext(generated))
        yield Reply.of("hel")


class CallsItABadRequest(EngineClient):
    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        try:
            async for item in super().astream(request, timeout_s=timeout_s):
                yield item
        except TimedOut:
            raise Overloaded("too late") from None


class TakesCancellingForAFailure(EngineClient):
    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        try:
            async for item in super().astream(request, timeout_s=timeout_s):
                yield item
        except asyncio.CancelledError:
            raise ProviderError("cancelled") from None

    async def acomplete(self, request: Request, *, timeout_s: float | None = None) -> Reply:
        items = [item async for item in self.astream(request, timeout_s=timeout_s)]
        assert isinstance(items[-1], Reply)
        return items[-1]


class HoldsUpTheLoop(EngineClient):
    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        if timeout_s is not None:
            time.sleep(timeout_s)  # noqa: ASYNC251
            raise TimedOut("too late")
        yield Reply.of("hello")


class MixesReplies(EngineClient):
    pieces: list[str]

    async def astream(self, request: Request, *, timeout_s: float | None = None) -> ITEMS:
        self.pieces = []
        async for item in super().astream(request, timeout_s=timeout_s):
            if isinstance(item, Reply):
                yield Reply.of("".join(self.pieces))
            elif isinstance(item, TextDelta):
                self.pieces.append(item.text)
                yield item


class AnswersWhenClosed(EngineClient):
    def close(self) -> None:
        """Do nothing."""


class CanBeClosedOnce(EngineClient):
    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True


class QuotesTheKey(EngineClient):
    def masked(self, error: ProviderError) -> ProviderError:
        return error


class ShowsItsKey(EngineClient):
    def __repr__(self) -> str:
        return f"EngineClient(key={self.key!r})"


class PicklesItsKey(EngineClient):
    def __reduce__(self) -> Any:
        return _engine_client, (self.key,)


def _engine_client(key: str) -> EngineClient:
    return EngineClient(Engine("hello"))


ERROR = Overloaded("busy", status=503)
FAULTS: list[tuple[str, type[EngineClient], dict[str, Any]]] = [
    ("it_has_a_name", HasNoName, {}),
    ("the_four_ways_give_equal_replies", EndsOtherwiseUnderAsyncio, {}),
    ("a_stream_is_its_deltas_and_then_one_reply", StreamsNoDeltas, {"way": "stream"}),
    ("a_stream_is_its_deltas_and_then_one_reply", StreamsNoReply, {"way": "astream"}),
    ("a_failure_is_an_error_of_its_kind", KnowsOneError, {"way": "complete", "error": ERROR}),
    ("a_failure_is_an_error_of_its_kind", TriesAgain, {"way": "astream", "error": AuthFailed("no", status=401)}),
    ("a_stream_that_is_closed_early_lets_go_of_its_request", LeavesItsStreamOpen, {"way": "astream"}),
    ("a_request_ends_at_its_timeout", CallsItABadRequest, {"way": "complete"}),
    ("a_request_of_a_cancelled_task_is_let_go", TakesCancellingForAFailure, {"way": "acomplete"}),
    ("the_event_loop_goes_on", HoldsUpTheLoop, {"way": "astream"}),
    ("two_requests_at_once_have_an_answer_each", MixesReplies, {"way": "stream"}),
    ("two_requests_at_once_have_an_answer_each", MixesReplies, {"way": "astream"}),
    ("a_closed_client_says_so", AnswersWhenClosed, {"way": "complete"}),
    ("a_closed_client_says_so", CanBeClosedOnce, {"way": "complete"}),
    ("no_error_shows_the_secret", QuotesTheKey, {"way": "acomplete"}),
    ("neither_repr_nor_pickle_shows_the_secret", ShowsItsKey, {}),
    ("neither_repr_nor_pickle_shows_the_secret", PicklesItsKey, {}),
]


@pytest.mark.system
@pytest.mark.parametrize(("check", "wrong", "case"), FAULTS, ids=[f"{w.__name__}-{check}" for check, w, _ in FAULTS])
def test_a_wrong_client_is_caught(
    check: str, wrong: type[EngineClient], case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Suite(EngineSuite):
        make = wrong

    monkeypatch.setattr("fsm_agent.testing.client_conformance.PATIENCE_S", 1.0)
    with pytest.raises((AssertionError, pytest.fail.Exception, ProviderError)):
        getattr(Suite(), f"test_{check}")(**case)


def test_each_check_has_a_fault_that_it_catches() -> None:
    checks = {name.removeprefix("test_") for name in dir(ClientConformance) if name.startswith("test_")}
    assert checks == {check for check, _, _ in FAULTS}


def test_what_is_missing_is_named() -> None:
    with pytest.raises(NotImplementedError, match=r"ClientConformance\.serving is missing"):
        ClientConformance().serving("hello")


@pytest.mark.system
@pytest.mark.parametrize(("name", "missing"), [("CodecConformance", "hypothesis"), ("ClientConformance", "pytest")])
def test_what_the_suites_need_is_named(name: str, missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from fsm_agent.testing import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"ImportError: {name} needs {missing}: pip install {missing}" in done.stderr
