"""Is no secret visible in anything that is written, even if the server quotes all of them?"""

from __future__ import annotations

import asyncio
import base64
import logging
import pickle
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import vcr
from conformance.client_requests import WAYS, ask, shown_by
from rich.console import Console
from rich.pretty import Pretty
from rich.scope import render_scope
from support.fault_server import CLOSE, END_OF_CHUNKS, SSE_HEAD, FaultServer, Step, chunk, events, http
from support.http_clients import KEY, client_of

from fsm_agent.agents import Agent
from fsm_agent.call import Approved, CallFailed, CallSuspended, Limits, snapshot
from fsm_agent.clients import HttpClient, Network
from fsm_agent.errors import ConfigError, ProviderError, RateLimited, UsageError
from fsm_agent.functions import Function, function
from fsm_agent.messages import HostedMCP
from fsm_agent.prompts import Prompt
from fsm_agent.store import MemoryStore, Runs, SqliteStore, Store
from fsm_agent.testing import Script, function_call, vcr_config

HEADERS = {
    "X-Password": "pass-word-4711",
    "X-Credential": "credential.4712",
    "X-Subscription": "subscribed",
    "X-Gateway-Key": "Key gateway.key.4713",
    "X-Pwd": "hunter2",
}
PLANTED = [KEY, "pass-word-4711", "credential.4712", "subscribed", "gateway.key.4713", "hunter2", "query.key.4714"]
PLANTED += ["another.query.4715", "path-t0ken-4716"]
SAID = f"What is {' or '.join(PLANTED)}?"
QUOTING: dict[str, list[Step]] = {
    "in a message": [http({"error": {"message": SAID, "code": PLANTED[5], "type": SAID}}, status=400)],
    "in a code": [http({"error": {"message": "no", "code": SAID}}, status=401, x_request_id=SAID)],
    "in a page": [http(f"<html><title>{SAID}</title>", status=500, content_type="text/html")],
    "in a redirect": [http("", status=302, location=f"https://example.invalid/{'/'.join(PLANTED)}")],
    "in a content type": [http("", content_type=f"text/{SAID}")],
    "in an encoding": [http("x", content_encoding=SAID)],
    "in a stream": [SSE_HEAD, chunk(events({"error": {"message": SAID, "code": SAID}})), END_OF_CHUNKS],
    "in no answer": [http({"what": SAID})],
    "in a status": [f"HTTP/1.1 {SAID}\r\n\r\n".encode()],
    "in a reason": [f"HTTP/1.1 400 {SAID}\r\ncontent-length: 0\r\n\r\n".encode()],
    "in a header": [f"HTTP/1.1 200 OK\r\n{SAID}\r\n\r\n".encode()],
    "in no HTTP": [SAID.encode(), CLOSE],
    "cut off": [http({"error": {"message": f"{'x' * (1000 - len(KEY))}{KEY}"}}, status=400)],
}


def address(server: FaultServer) -> str:
    return f"{server.base_url}/path-t0ken-4716?api-version=2&key=query.key.4714&k=another.query.4715"


def seen_in(text: str, planted: Sequence[str] = PLANTED) -> list[str]:
    return [secret for secret in planted if secret in text or secret[:-1] in text]


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Any:
    """All that is logged, by whomever, at every level."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    return lambda: caplog.text


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", QUOTING)
@pytest.mark.usefixtures("over")
def test_errors_and_logs(where: str, way: str, written: Any) -> None:
    with FaultServer(QUOTING[where]) as server:
        client = client_of(address(server), headers=HEADERS)
        with client, pytest.raises(ProviderError) as caught:
            ask(client, way)
    assert server.requests[0].headers["x-password"] == "pass-word-4711"
    assert seen_in(shown_by(caught.value)) == []
    assert seen_in(written()) == []


@pytest.mark.system
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("over")
def test_a_short_key_that_is_declared(way: str, written: Any) -> None:
    said = {"error": {"message": "Incorrect key: pa55.", "code": "pa55"}}
    with FaultServer([http(said, status=401, x_request_id="pa55")]) as server:
        client = client_of(server, api_key="pa55")
        with client, pytest.raises(ProviderError, match=r"Incorrect key: \*\*\*\.") as caught:
            ask(client, way)
    assert "pa55" not in shown_by(caught.value) + written()


@pytest.mark.system
@pytest.mark.parametrize("client", [None, httpx.AsyncClient])
@pytest.mark.parametrize("way", ["complete", "acomplete"])
def test_addresses_in_the_logs_of_httpx(way: str, client: Any, written: Any) -> None:
    """It writes each address, with its query, at INFO.  Addresses of other code in the process stay unchanged."""
    script: list[Step] = [http({"error": {"message": SAID}}, status=400, set_cookie=SAID)]
    with FaultServer(script, [http("")]) as server:
        asked = client_of(address(server), Network(client=client), headers=HEADERS)
        with asked, pytest.raises(ProviderError):
            ask(asked, way)
        httpx.post(f"{server.base_url}/?key=of-somebody-else", content=b"x")
    assert seen_in(written()) == []
    assert written().count("HTTP Request: POST") == 2
    assert "?api-version=2&key=***&k=***" in written()
    assert "?key=of-somebody-else" in written()


def test_a_base_url_that_is_none() -> None:
    for wrong in ("ftp://h/path-t0ken-4716?key=query.key.4714", "h/path-t0ken-4716?key=query.key.4714"):
        with pytest.raises(ConfigError, match="base_url: ") as caught:
            client_of(wrong)
        assert seen_in(shown_by(caught.value)) == []


def test_no_repr_shows_a_secret() -> None:
    client = client_of("https://h.invalid/path-t0ken-4716?key=query.key.4714&k=another.query.4715", headers=HEADERS)
    agent = Agent(client, system="x")
    shown = [client, client._access, client._access.locate(), agent, agent.prepare("Hello?"), HOSTED]
    assert seen_in(repr(shown)) == []


@pytest.mark.parametrize("given", [{"api_key": KEY}, {"headers": HEADERS}])
def test_a_client_that_was_given_a_secret_is_not_pickled(given: Any) -> None:
    client = HttpClient("openai-compatible", "m", base_url="https://h.invalid/v1", **given)
    with pytest.raises(UsageError, match="cannot be pickled") as refused:
        pickle.dumps(client)
    assert seen_in(shown_by(refused.value)) == []


HOSTED = HostedMCP("files", "https://h.invalid/path-t0ken-4716?k=another.query.4715", authorization="hunter2")


@function
def look() -> str:
    """Look."""
    return "seen"


LIKELY = "sk-abcdefghijklmnopqrstuvwx"  # nobody declared it, and its format says what it is


@pytest.mark.parametrize("on_error", ["tell", "fail"])
def test_lines_about_user_code_that_quotes_a_key(on_error: Any, written: Any) -> None:
    def look() -> str:
        raise LookupError(f"no {LIKELY}") from ValueError(LIKELY)

    def parse(text: str) -> str:
        raise ZeroDivisionError(text)

    asked = Script(function_call("look"), RateLimited(f"slow down, {LIKELY}", retry_after_s=0.001), LIKELY, LIKELY)
    looking = Function.of(look, on_error=on_error)
    agent = Agent(asked, limits=Limits(parse_retries=1))
    with pytest.raises(CallFailed):
        agent.call(Prompt("?", parser=parse, functions=[looking]), extra={"token": LIKELY})
    assert "function 'look' (run:1.0) raised LookupError" in written()
    assert "LookupError: no sk-a***" in written()
    assert ("slow down, sk-a***" in written()) == (on_error == "tell")
    assert ("ZeroDivisionError: sk-a***" in written()) == (on_error == "tell")
    assert seen_in(written(), [LIKELY]) == []


@pytest.mark.system
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_kept_of_a_call(stream: bool, tmp_path: Path, written: Any) -> None:
    """A cassette is recorded of a call that uses a function, and then fails with all that the server knows."""
    asked = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [asked]}
    said = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    path = tmp_path / "tape.yaml"
    seen: list[Any] = []
    encoded = base64.b64encode(f"me:{KEY}".encode()).decode()
    refusal = {"error": {"message": f"{SAID} {quote(SAID)} {encoded}", "code": SAID}}
    refused: list[Step] = [http(refusal, status=400, x_request_id=SAID, set_cookie=SAID)]
    tape = vcr.VCR(**vcr_config()).use_cassette(str(path))
    with FaultServer([http(said)], refused) as server, tape:
        client = client_of(address(server), headers=HEADERS)
        agent = Agent(client, functions=[look], limits=Limits(recalls=0))
        call = agent.prepare("Hello?")
        with pytest.raises(CallFailed) as caught:
            seen += agent.stream(call) if stream else [agent.run(call, seen.append)]
    assert len(server.requests) == 2
    kept = path.read_text()
    assert "interactions" in kept
    assert seen_in(kept) == []
    assert "dGhlLmtleS50aGF0" not in kept  # the key's beginning, in Base64
    assert seen_in(snapshot(call) + repr(call) + repr(call.record) + repr(seen)) == []
    assert seen_in(shown_by(caught.value)) == []
    assert seen_in(written()) == []


SIGNING_KEY = "signing-key-4717-" + "s" * 16
STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "runs.db"),
}


def kept_bytes(store: Store, folder: Path) -> str:
    """Return everything that a store has written or holds: its files as they are, and everything that it returns."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert store.is_volatile or files
    loaded = [store.load(run.id, after=after) for run in store.list() for after in (0, None)]
    snapshots = [zlib.decompress(each.snapshot[1]).decode() for each in loaded if each.snapshot is not None]
    assert snapshots
    held = store._connection.serialize() if isinstance(store, MemoryStore) else b""
    raw = held + b"".join([path.read_bytes() for path in files])
    return "\n".join([repr(loaded), *snapshots, raw.decode("latin-1"), *map(str, files)])


def shown_by_rich(*values: Any) -> str:
    """The values as rich shows them: pretty, with all that is in them, and as a traceback's locals are."""
    console = Console(file=StringIO(), width=1000, no_color=True)
    for value in values:
        console.print(value, Pretty(value, expand_all=True))
    console.print(render_scope({f"v{n}": value for n, value in enumerate(values)}))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.system
@pytest.mark.parametrize(
    ("kind", "way"),
    [
        *[("memory", "acall"), ("sqlite", "call"), ("sqlite", "stream")],
        *[pytest.param("sqlite", "acall", marks=pytest.mark.nightly)],
        *[pytest.param("memory", way, marks=pytest.mark.nightly) for way in ("call", "stream")],
    ],
)
def test_what_is_kept_of_a_run(kind: str, way: str, tmp_path: Path, written: Any) -> None:
    """The server quotes everything that it knows while it is away, then asks for a function, and fails in the end."""
    asked = {"id": "c1", "type": "function", "function": {"name": "wipe", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [asked]}
    said = http({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    encoded = base64.b64encode(f"me:{KEY}".encode()).decode()
    about = {"error": {"message": f"{SAID} {quote(SAID)} {encoded}", "code": SAID}}
    busy: list[Step] = [http(about, status=503, x_request_id=SAID, retry_after="0.001")]
    refused: list[Step] = [http(about, status=400, x_request_id=SAID, set_cookie=SAID)]

    @function(needs_approval=True)
    def wipe() -> str:
        """Wipe."""
        return "wiped"

    store = STORES[kind](tmp_path)
    runs = Runs(store, signing_key=SIGNING_KEY)
    with FaultServer(busy, [said], refused) as server:
        client = client_of(address(server), headers=HEADERS)
        agent = Agent(client, functions=[wipe], limits=Limits(recalls=1), store=runs, name="unseen")
        with suppress(CallSuspended):
            if way == "acall":
                asyncio.run(agent.acall("Hello?", run_id="r1", extra={"ticket": 4711}))
            elif way == "stream":
                list(agent.stream("Hello?", run_id="r1"))
            else:
                agent.call("Hello?", run_id="r1")
        with pytest.raises(CallSuspended) as waiting:
            agent.runs.resume("r1")
        at_rest = kept_bytes(store, tmp_path)
        with pytest.raises(CallFailed) as failed:
            agent.runs.resume("r1", {"ask:1.0": Approved()}, by="ann")
    assert len(server.requests) == 3
    kept = at_rest + kept_bytes(store, tmp_path)
    assert "retry" in kept
    assert "wiped" in kept
    one = failed.value.call
    exported = "\n".join([*runs.export("r1"), *runs.export("r1", lambda outcome: outcome)])
    copied = snapshot(one) + snapshot(one, signing_key=SIGNING_KEY)
    lease = store.claim("w", for_s=9.0, run="r1")
    public = [runs, store, agent, client, one, one.record, one.journal, *one.states, one.record.failures, lease]
    public += [store.load("r1"), *store.list(), one.result, waiting.value, failed.value, waiting.value.call]
    shown = repr(public) + shown_by_rich(*public) + shown_by(waiting.value) + shown_by(failed.value)
    everything = kept + exported + copied + shown + written()
    assert seen_in(everything, [*PLANTED, SIGNING_KEY]) == []
    assert runs.journals.key is not None
    assert runs.journals.key.hex() not in everything
    assert repr(runs.journals.key)[2:-1] not in everything
    store.close()
