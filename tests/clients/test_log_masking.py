"""Is what libraries log masked while they serve us, and left alone otherwise?"""

from __future__ import annotations

import asyncio
import logging
import threading

import httpx
import pytest
from support.http_clients import KEY

from fsm_agent._internal.masking import Secrets
from fsm_agent.clients.endpoint import masked_logs


@pytest.fixture(autouse=True)
def _at_every_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


@pytest.mark.parametrize("name", ["httpx", "httpcore.http11", "mcp.client.streamable_http"])
def test_messages_arguments_and_tracebacks_are_masked(name: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger(name)
    url = httpx.URL(f"https://h/{KEY}?k=ab")
    with masked_logs(Secrets([KEY])):
        logger.info("to %s: %d", url, 7)
        logger.info("it is %(key)s", {"key": KEY})
        try:
            raise LookupError(KEY)
        except LookupError:
            logger.exception(f"no {KEY}")
    assert [record.getMessage() for record in caplog.records] == ["to https://h/***?k=***: 7", "it is ***", "no ***"]
    assert "LookupError: ***" in caplog.text
    assert KEY not in caplog.text


def test_secrets_are_looked_for_when_something_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    found = list[str]()

    def find() -> list[str]:
        found.append(KEY)
        return [KEY]

    with masked_logs(find):
        assert found == []
        logging.getLogger("httpx").info("key %s", KEY)
    assert found == [KEY]
    assert [record.getMessage() for record in caplog.records] == ["key ***"]


def test_headers_of_http_2_are_not_logged_at_all(caplog: pytest.LogCaptureFixture) -> None:
    """They are also logged in Huffman's code, which is easy to read."""
    hpack = pytest.importorskip("hpack")
    with masked_logs(Secrets([KEY])):
        hpack.Encoder().encode([("authorization", KEY)], huffman=True)
    assert caplog.records == []
    hpack.Encoder().encode([("authorization", KEY)], huffman=True)
    assert KEY in caplog.text


def test_tasks_that_begin_inside_are_masked_and_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("httpx")

    async def say(name: str, go: asyncio.Event) -> None:
        await go.wait()
        logger.info("%s %s", name, KEY)

    async def main() -> None:
        go = asyncio.Event()
        before = asyncio.create_task(say("before", go))
        with masked_logs(Secrets([KEY])):
            inside = asyncio.create_task(say("inside", go))
            thread = threading.Thread(target=logger.info, args=("thread %s", KEY))
            thread.start()
            thread.join()
        after = asyncio.create_task(say("after", go))
        go.set()
        await asyncio.gather(before, inside, after)

    asyncio.run(main())
    said = [record.getMessage() for record in caplog.records if record.name == "httpx"]
    assert sorted(said) == [f"after {KEY}", f"before {KEY}", "inside ***", f"thread {KEY}"]


def test_other_loggers_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    with masked_logs(Secrets([KEY])):
        logging.getLogger("mine").info(KEY)
    assert KEY in caplog.text
