"""Can other OS processes use the tools of a server, over stdio and HTTP, and can none of them answer one state
twice?
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import mcp_types as types
from mcp import Client, StdioServerParameters, stdio_client
from mcp_shop import ANSWERED, SECRET
from support.paths import ROOT, TESTS

SHOP = TESTS / "mcp" / "mcp_shop.py"


async def approve(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"approve": True})


def yes() -> Any:
    return {"ask:1.0": types.ElicitResult(action="accept", content={"approve": True})}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.touch()
    return path


def command(store: Path, notes: Path, *kind: str) -> list[str]:
    return [sys.executable, str(SHOP), str(store), str(notes), *kind]


def env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{TESTS}", "PYTHONUNBUFFERED": ""}


@contextlib.contextmanager
def http(store: Path, notes: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(command(store, notes, "http"), stdout=subprocess.PIPE, text=True, env=env())
    with process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.terminate()


@contextlib.asynccontextmanager
async def stdio(store: Path, notes: Path, mode: str = "auto") -> AsyncIterator[Client]:
    program, *args = command(store, notes)
    transport = stdio_client(StdioServerParameters(command=program, args=args, env=env()))
    async with Client(transport, elicitation_callback=approve, mode=mode) as client:
        yield client


@contextlib.asynccontextmanager
async def over_http(url: str, mode: str = "auto") -> AsyncIterator[Client]:
    async with Client(url, elicitation_callback=approve, mode=mode) as client:
        yield client


def text_of(result: Any) -> str:
    return str(result.content[0].text)


def noted(notes: Path) -> list[str]:
    return notes.read_text().splitlines()


async def use(client: Client, notes: Path) -> None:
    """Do what any client does."""
    progress = list[Any]()

    async def hear(number: float, total: float | None, text: str | None) -> None:
        progress.append(text)

    assert text_of(await client.call_tool("add", {"a": 40, "b": 2})) == "42"
    assert text_of(await client.call_tool("count", {"to": 3}, progress_callback=hear)) == "counted"
    assert progress == ["1 of 3", "2 of 3", "3 of 3"]
    assert text_of(await client.call_tool("desk", {"task": "B-1"})) == "The money: refunded B-1"
    assert noted(notes) == ["refund B-1"]
    raised = await client.call_tool("bad", {})
    assert raised.is_error
    assert SECRET[6:] not in text_of(raised)
    calling = asyncio.create_task(client.call_tool("hang", {}))
    done, _ = await asyncio.wait({calling}, timeout=0.2)
    assert not done
    calling.cancel()
    assert text_of(await client.call_tool("add", {"a": 1})) == "2"


@pytest.mark.system
async def test_over_stdio_and_http(tmp_path, notes):
    async with stdio(tmp_path / "stdio.db", notes, "legacy") as client:
        await use(client, notes)
    notes.write_text("")
    with http(tmp_path / "http.db", notes) as (url, _):
        async with over_http(url) as client:
            await use(client, notes)


@pytest.mark.system
def test_what_is_printed_and_read_by_functions_is_not_the_protocol(tmp_path, notes):
    """A line that is too long or no message is passed over; the process ends with its input."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    }
    calls = [
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}},
    ]
    code = (
        "from fsm_agent.mcp import serve\n"
        "def add(a: int) -> str:\n"
        "    'Add.'\n"
        "    print('a stray line')\n"
        "    return repr(__import__('sys').stdin.read())\n"
        "serve('shop', [add]).run_stdio()\n"
    )
    lines = [json.dumps(hello), "{" * 40_000_000, "nonsense", *map(json.dumps, calls)]
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        read = []
        while not any(answer.get("id") == 2 for answer in read):
            read.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(timeout=30) == 0
        assert process.stdout.read() == ""  # the stray line went to stderr
    assert read[-1]["result"]["content"][0]["text"] == "''"


@pytest.mark.system
async def test_two_processes_with_one_store_take_one_answer(tmp_path, notes):
    store = tmp_path / "runs.db"
    with http(store, notes) as (one, _), http(store, notes) as (other, _):
        async with over_http(one) as first, over_http(other) as second:
            for round in range(10):
                order = {"order": f"C-{round}"}
                waits = await first.session.call_tool("refund", order, allow_input_required=True)
                answer = {"input_responses": yes(), "request_state": waits.request_state}
                calls = [client.session.call_tool("refund", order, **answer) for client in (first, second)]
                texts = sorted(map(text_of, await asyncio.gather(*calls)))
                assert texts == sorted([ANSWERED, f"refunded C-{round}"])
    assert noted(notes) == [f"refund C-{round}" for round in range(10)]


@pytest.mark.nightly
@pytest.mark.timeout(200)  # the lease of the dead process alone takes half a minute
async def test_a_state_outlives_its_process_and_what_had_begun_is_asked_about(tmp_path, notes):
    """The first process is killed in the middle of a function that must not run twice."""
    store = tmp_path / "runs.db"
    order = {"order": "D-1"}
    done = {"outcome": "It was done", "text": "D-1 is dead"}
    told = list[str]()

    async def say(context: Any, params: Any) -> types.ElicitResult:
        told.append(params.message)
        return types.ElicitResult(
            action="accept", content=done if "outcome" in params.requested_schema["properties"] else {"approve": True}
        )

    async def answer(url: str, **answers: Any) -> Any:
        try:
            async with Client(url, elicitation_callback=say) as client:
                return await client.session.call_tool(
                    "die", order, request_state=state, allow_input_required=True, **answers
                )
        except BaseExceptionGroup as error:
            return error

    async with stdio(store, notes) as client:
        state = (await client.session.call_tool("die", order, allow_input_required=True)).request_state
    with http(store, notes) as (url, process):
        failed = await answer(url, input_responses=yes())
        assert process.wait(timeout=30) == 9
        assert isinstance(failed, BaseExceptionGroup)
    with http(store, notes) as (url, _):
        assert text_of(await answer(url, input_responses=yes())) == ANSWERED
        until_s = time.monotonic() + 100  # the lease of the dead process ends
        while not isinstance(waits := await answer(url), types.InputRequiredResult):
            assert time.monotonic() < until_s
            await asyncio.sleep(0.5)
        (key,) = waits.input_requests
        assert "must not run twice" in waits.input_requests[key].params.message
        result = await answer(url, input_responses={key: types.ElicitResult(action="accept", content=done)})
        assert text_of(result) == "D-1 is dead"
    assert noted(notes) == ["die D-1"]


@pytest.mark.system
def test_a_server_is_reached_from_this_machine_and_no_page_of_another(tmp_path, notes):
    import httpx

    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    with http(tmp_path / "runs.db", notes) as (url, process):
        for header in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            accept = {"Accept": "application/json, text/event-stream", **header}
            answer = httpx.post(url, json=body, headers=accept, trust_env=False, timeout=50)
            assert answer.status_code in (403, 421)
        headers = {"Content-Type": "application/json"}
        too_long = httpx.post(url, content=b"[" * 5_000_000, headers=headers, trust_env=False, timeout=50)
        assert too_long.status_code == 413
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)
