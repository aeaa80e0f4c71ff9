"""The conformance suite of clients."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import pytest

from conformance.client_requests import ASYNC, REQUEST, aask, ask, outcomes, shown_by
from conformance.streams import mismatch
from fsm_agent.clients import Client
from fsm_agent.errors import AuthFailed, Overloaded, ProviderError, RateLimited, TimedOut, UsageError
from fsm_agent.messages import Reply, TextDelta

PATIENCE_S = 10.0  # for what happens at once on a machine that is not busy
SOON_S = 0.05  # in which no reply comes that never ends


@dataclass(frozen=True)
class Endless:
    """An answer that never ends: a stream that begins with ``text``, and then continues or stalls.

    Examples:
        >>> Endless("la ").text                                      # what ClientConformance asks of a client's server
        'la '
    """

    text: str


ScriptedAnswer: TypeAlias = str | ProviderError | Endless

_ERRORS = (
    Overloaded("busy", status=503),
    RateLimited("slow down", status=429, retry_after_s=7.0),
    AuthFailed("no such key", status=401),
    ProviderError("the request is wrong", status=400),
)
each_way = pytest.mark.parametrize("way", ASYNC)  # whole and in pieces


class ClientConformance:
    """The tests that every `Client` passes.

    A test class derives from it, with a client whose model answers as the test wants::

        class TestAcme(ClientConformance):
            def serving(self, *answers): ...

    It needs only pytest, and sends nothing beyond `serving`.

    Attributes:
        secret: The key of the client, which no error, repr or pickle may show, or empty.
        reopens: Whether the client can be used after it was closed.

    Examples:
        >>> class TestMyClient(ClientConformance):                   # doctest: +SKIP
        ...     def serving(self, *answers): ...
    """

    secret: ClassVar[str] = ""
    reopens: ClassVar[bool] = False

    def serving(self, *answers: ScriptedAnswer) -> AbstractContextManager[Client]:
        """Return a context manager of a client whose model gives these answers.

        Each is the answer to one request, in the order in which they arrive; the last one is given again and again.

        Args:
            answers: A text; a failure, by the error that it shall become; or one that is `Endless`.
        """
        raise NotImplementedError(f"{type(self).__name__}.serving is missing: a context manager of a client is right")

    def under_way(self, client: Client) -> int:
        """Return the number of requests that the model of this client is answering; by default 0."""
        return 0

    def begins(self, client: Client) -> object:
        """Return once the model of this client is answering a request; by default at once."""
        return None

    def test_it_has_a_name(self) -> None:
        """The name is the model's, and no request changes it."""
        with self.serving("hello") as client:
            name = client.name
            assert isinstance(name, str)
            assert name
            ask(client, "acomplete")
            assert client.name == name

    def test_both_ways_give_equal_replies(self) -> None:
        """The reply does not depend on how the client is asked."""
        with self.serving("hello there") as client:
            replies = [ask(client, way)[-1] for way in ASYNC]
        for reply in replies:
            assert isinstance(reply, Reply)
            assert reply.message.text == "hello there"
            assert (reply.message, reply.finish, reply.usage) == (
                replies[0].message,
                replies[0].finish,
                replies[0].usage,
            )

    def test_a_stream_is_its_deltas_and_then_one_reply(self) -> None:
        """The deltas announce exactly what the reply contains."""
        with self.serving("hello there") as client:
            *deltas, reply = ask(client, "astream")
        assert isinstance(reply, Reply), f"the last item of a stream is {reply!r}: the Reply would be right"
        assert not any(isinstance(delta, Reply) for delta in deltas), "a reply comes before the end of its stream"
        assert mismatch(reply, deltas) is None

    @each_way
    @pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
    def test_a_failure_is_an_error_of_its_kind(self, way: str, error: ProviderError) -> None:
        """The client retries nothing by itself, since the machine does, and the next request is as good as ever."""
        with self.serving(error, "hello") as client:
            failure, reply = outcomes(client, way, None, None)
        assert type(failure) is type(error), f"{error!r} became {failure!r}"
        assert error.message in failure.message
        assert (failure.status, failure.retryable, failure.retry_after_s) == (
            error.status,
            error.retryable,
            error.retry_after_s,
        )
        assert isinstance(reply, Reply), f"behind a failure the next request is {reply!r}"
        assert reply.message.text == "hello"

    def test_a_stream_that_is_closed_early_lets_go_of_its_request(self) -> None:
        """The model is no longer read, and the client stays usable."""
        with self.serving(Endless("hel"), "hello") as client:
            asyncio.run(self._begin_and_close(client))
            self._check_idle(client)
            assert ask(client, "astream")[-1].message.text == "hello"

    async def _begin_and_close(self, client: Client) -> None:
        items = client.astream(REQUEST, timeout_s=PATIENCE_S)
        assert await anext(item async for item in items if isinstance(item, TextDelta)) == TextDelta("hel")
        await items.aclose()
        await asyncio.to_thread(self._check_idle, client)

    def _check_idle(self, client: Client) -> None:
        assert _becomes(lambda: self.under_way(client) == 0), f"{self.under_way(client)} requests are still under way"

    @each_way
    def test_a_request_ends_at_its_timeout(self, way: str) -> None:
        """It fails in time with `TimedOut`, and nothing of the request continues."""
        with self.serving(Endless("hel")) as client:
            found = outcomes(client, way, SOON_S, SOON_S)
            for late in found:
                assert type(late) is TimedOut, f"a request that took too long is {late!r}"
                assert late.retryable
            self._check_idle(client)

    def test_a_request_of_a_cancelled_task_is_let_go(self) -> None:
        """While the request waits, the loop continues.  `asyncio.CancelledError` is not a failure, and propagates."""

        async def main() -> None:
            task = asyncio.ensure_future(aask(client, "astream"))
            await asyncio.sleep(0)
            await asyncio.to_thread(self.begins, client)
            if not task.cancel():  # it is answered already, as one to a double may be
                return
            with suppress(asyncio.CancelledError):
                await task
            assert task.cancelled(), f"a cancelled task ended as {task!r}"
            await asyncio.to_thread(self._check_idle, client)

        with self.serving(Endless("hel")) as client:
            asyncio.run(main())
            (late,) = outcomes(client, "astream", SOON_S)
            assert type(late) is TimedOut, f"behind a cancelled request the next one is {late!r}"

    @pytest.mark.parametrize("turns", [0, 1, 2, 3])
    def test_a_request_that_is_cancelled_as_it_begins_ends(self, turns: int) -> None:
        """However early the cancellation comes: before the first step, or before the work that it has begun runs."""

        async def main() -> None:
            task = asyncio.ensure_future(aask(client, "astream"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task], timeout=PATIENCE_S)
            assert task.done(), "it is never let go of"
            await asyncio.to_thread(self._check_idle, client)

        with self.serving(Endless("hel")) as client:
            asyncio.run(main())

    def test_two_requests_at_once_have_an_answer_each(self) -> None:
        """Of two tasks: both streams are open before one is read on."""
        with self.serving("hello one", "hello two") as client:
            texts = asyncio.run(_two_tasks(client))
        assert sorted(texts) == ["hello one", "hello two"]

    @each_way
    def test_a_closed_client_says_so(self, way: str) -> None:
        """Closing can be repeated; a later request raises `UsageError`."""
        with self.serving("hello") as client:
            ask(client, way)
            client.close()
            client.close()
            asyncio.run(client.aclose())
            if self.reopens:
                assert ask(client, way)[-1].message.text == "hello"
                return
            with pytest.raises(UsageError, match="closed"):
                ask(client, way)

    @each_way
    def test_no_error_shows_the_secret(self, way: str) -> None:
        """Some servers quote the key that they refuse."""
        if not self.secret:
            pytest.skip("secret is '': this client holds none")
        with self.serving(AuthFailed(f"no such key: {self.secret}", status=401)) as client:
            (failure,) = outcomes(client, way, None)
        assert isinstance(failure, AuthFailed)
        assert self.secret not in shown_by(failure)

    def test_neither_repr_nor_pickle_shows_the_secret(self) -> None:
        """A client that cannot be pickled without it refuses; a copy of any other is of the same model."""
        with self.serving("hello") as client:
            shown = repr(client) + client.name
            pickled = _pickled(client)
            assert pickled is None or pickle.loads(pickled).name == client.name
        assert not self.secret or self.secret not in shown, "the repr or name of a client shows its key"
        assert not self.secret or self.secret.encode() not in (pickled or b""), "the pickle of a client shows its key"


def _pickled(client: Client) -> bytes | None:
    """Return the pickle of a client, or None if it refuses."""
    try:
        return pickle.dumps(client)
    except (UsageError, TypeError, AttributeError, pickle.PicklingError):
        return None


def _becomes(is_true: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(is_true() or pause.wait(0.005) for _ in range(int(PATIENCE_S / 0.005)))


async def _two_tasks(client: Client) -> list[str]:
    meeting = asyncio.Barrier(2)

    async def request() -> str:
        items = client.astream(REQUEST)
        first = await anext(items)
        async with asyncio.timeout(PATIENCE_S):
            await meeting.wait()
        return _text_of([first, *[item async for item in items]])

    return [*await asyncio.gather(request(), request())]


def _text_of(items: list[Any]) -> str:
    reply = items[-1]
    assert isinstance(reply, Reply), f"the last item of a stream is {reply!r}: the Reply would be right"
    text: str = reply.message.text
    return text
