"""Is what was recorded played again as it was, to who asks the same, and to nobody else?"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import ssl
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from conformance.client_requests import STREAMED, TWO_WAYS, ask
from support.fault_server import FaultServer, head, http
from support.http_clients import KEY, PIECES, client_of, completion, good
from support.stub_server import StubServer

from fsm_agent.agents import Agent
from fsm_agent.clients import Cassette, CassetteError, HttpClient
from fsm_agent.errors import BadReply, ConfigError, ProviderError, RateLimited
from fsm_agent.lifecycle import Request
from fsm_agent.messages import Message, TextDelta

ADDRESS = "http://127.0.0.1:9/v1"  # nobody listens there


def asking(text: str) -> Request:
    return Request(messages=(Message.of("user", text),))


def asker(cassette: Cassette, base_url: str = ADDRESS, **options: Any) -> HttpClient:
    options = {"api_key": KEY, **options}
    return HttpClient("openai-compatible", "m", base_url=base_url, network=cassette.network(), **options)


def exchange(text: str, reply: str = "hello", url: str = ADDRESS, **changes: Any) -> dict[str, Any]:
    """What a cassette keeps of one question."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **changes}
    return {
        "request": {"method": "POST", "url": f"{url}/chat/completions", "json": body},
        "response": {"status": 200, "headers": {"content-type": "application/json"}, "json": completion(reply)},
    }


def written(path: Path, *exchanges: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"version": 1, "exchanges": exchanges}))
    return path


@pytest.mark.parametrize("way", TWO_WAYS)
def test_what_is_recorded_is_played_again(way: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "tape.json"
    with StubServer(["Hi there.", "Bye."]) as server:
        with Cassette(path) as tape, asker(tape, server.base_url) as client:
            recorded = [ask(client, way), ask(client, way)]
        assert len(server.requests) == 2
    with Cassette(path) as tape, asker(tape, server.base_url, api_key="none") as client:
        assert [ask(client, way), ask(client, way)] == recorded
    assert [items[-1].message.text for items in recorded] == ["Hi there.", "Bye."]
    assert [path.name for path in path.parent.iterdir()] == ["tape.json"]


def test_the_file_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    with StubServer(["Grüße"]) as server, Cassette(path, "record") as tape, asker(tape, server.base_url) as client:
        client.complete(asking("Hallo?"))
    text = path.read_text()
    assert '"content": "Grüße"' in text
    assert text.startswith('{\n  "version": 1,\n  "exchanges": [\n')
    (kept,) = json.loads(text)["exchanges"]
    assert list(kept["request"]) == ["method", "url", "json"]
    assert kept["request"]["json"]["messages"] == [{"role": "user", "content": "Hallo?"}]
    assert kept["response"]["headers"]["content-type"] == "application/json"


def sent(tape: Cassette, request: httpx.Request) -> list[str]:
    """The pieces of what a cassette plays for a request."""

    async def main() -> list[str]:
        make = tape.network().client
        assert callable(make)
        response = await make().send(request, stream=True)
        return [piece.decode() async for piece in response.aiter_raw()]

    return asyncio.run(main())


@pytest.mark.parametrize("way", STREAMED)
def test_streams_come_as_they_were(way: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    body = b": alive\r\n\r\n" + PIECES + b"data: cut off"
    steps = [head(content_type="text/event-stream", content_length=str(len(body))), body]
    with FaultServer(steps) as server:
        with Cassette(path, "record") as tape, asker(tape, server.base_url) as client:
            recorded = ask(client, way)
        url = server.base_url
    kept = json.loads(path.read_text())["exchanges"][0]["response"]["sse"]
    assert "".join(kept).encode() == body
    assert kept[0] == ": alive\r\n\r\n"
    assert [event[:5] for event in kept[1:]] == ["data:"] * (len(kept) - 1)
    with Cassette(path) as tape:
        request = httpx.Request("POST", f"{url}/chat/completions", json=_asked_in(path))
        assert sent(tape, request) == kept
    with Cassette(path) as tape, asker(tape, url) as client:
        assert ask(client, way) == recorded
    assert recorded[:-1] == [TextDelta("hel"), TextDelta("lo")]


def test_a_stream_without_an_event_is_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    with FaultServer([head(content_type="text/event-stream", content_length="0")]) as server:
        url = server.base_url
        with Cassette(path, "record") as tape, asker(tape, url) as client, pytest.raises(BadReply) as recorded:
            ask(client, "astream")
    with Cassette(path) as tape, asker(tape, url) as client, pytest.raises(BadReply) as played:
        ask(client, "astream")
    assert str(played.value) == str(recorded.value)


def _asked_in(path: Path) -> Any:
    return json.loads(path.read_text())["exchanges"][0]["request"]["json"]


def test_compressed_replies_and_errors_and_text_are_kept_readable(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    packed = gzip.compress(json.dumps(completion("packed")).encode())
    gzipped = head(content_type="application/json", content_length=str(len(packed)), content_encoding="gzip")
    error = {"error": {"message": "slow down"}}
    with FaultServer([gzipped, packed], [http(error, status=429, retry_after="7")]) as server:
        with Cassette(path, "record") as tape, asker(tape, server.base_url) as client:
            assert client.complete(asking("1")).message.text == "packed"
            with pytest.raises(RateLimited):
                client.complete(asking("2"))
        url = server.base_url
    with Cassette(path) as tape, asker(tape, url) as client:
        assert client.complete(asking("1")).message.text == "packed"
        with pytest.raises(RateLimited, match="slow down") as caught:
            client.complete(asking("2"))
        assert caught.value.retry_after_s == 7


def test_auto_records_once_and_record_records_anew(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    for mode, said in (("auto", "one"), ("auto", "one"), ("record", "two"), ("replay", "two")):
        with StubServer([said]) as server, Cassette(path, mode) as tape:  # type: ignore[arg-type]
            url = server.base_url if tape.is_recording else _url_in(path)
            assert asker(tape, url).complete(asking("?")).message.text == said
            assert len(server.requests) == tape.is_recording


def _url_in(path: Path) -> str:
    return str(json.loads(path.read_text())["exchanges"][0]["request"]["url"]).removesuffix("/chat/completions")


# Secrets

CARRIED = [KEY, "query-key-4711-abc", "hidden.header.value", 'odd"key\\here', "request-cookie-4711"]
KEY_LIKE = ["sk-proj-abcdefghijkl123456", "AIzaSyA-abcdefghijklmnopqrstuv", "org-Ab3dEfGhIjKlMnOp"]
KEY_LIKE += ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0", "projects/123456789012", "AKIAIOSFODNN7EXAMPLE"]
HEADERS = {"x-secret": "hidden.header.value", "x-other-key": 'odd"key\\here', "cookie": "request-cookie-4711"}
GIVEN = ["reply-cookie-4711", "acct-header-4711"]  # by the server


@pytest.mark.parametrize("way", ["complete", "astream"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/plain"])
def test_nothing_secret_reaches_the_file(way: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    question = f"Mine are {' and '.join([*CARRIED, *KEY_LIKE])}\nsk-behindAnEscape0123456789"
    said = json.dumps({"error": {"message": f"{question}, and yours {' and '.join(GIVEN)}"}})
    said = f"data: {said}\n\n" if kind == "text/event-stream" else said
    said = f"Sorry!\n{said}" if kind == "text/plain" else said
    given = {"set_cookie": GIVEN[0], "openai_organization": GIVEN[1], "x_request_id": "who-asked-4711"}
    with FaultServer([http(said, status=400, content_type=kind, **given)]) as server:
        url = f"{server.base_url}?api-version=2&key=query-key-4711-abc"
        with Cassette(path, "record") as tape, pytest.raises(ProviderError) as recorded:
            ask(asker(tape, url, headers=HEADERS), way, request=asking(question))
    text = path.read_text()
    leaked = [secret for secret in [*CARRIED, *KEY_LIKE, *GIVEN, "behindAnEscape", "who-asked"] if secret in text]
    assert leaked == []
    assert 'odd\\\\\\"key' not in text
    assert 'odd\\"key' not in text
    assert "Mine are *** and" in text
    assert "api-version=2&key=***" in text
    with Cassette(path) as tape, pytest.raises(ProviderError) as played:
        ask(asker(tape, url, headers=HEADERS), way, request=asking(question))
    assert played.value.report() == recorded.value.report()


def test_only_what_a_replay_needs_is_kept_of_the_headers(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    kept = {"content-type": "application/json", "retry-after": "7", "retry-after-ms": "7000", "date": "today"}
    others = ["server", "x-request-id", "cf-ray", "set-cookie", "openai-organization", "x-ratelimit-limit-requests"]
    given = {name.replace("-", "_"): value for name, value in kept.items()}
    given |= {name.replace("-", "_"): f"other-{n}" for n, name in enumerate(others)}
    script = [http({"error": {"message": "no"}}, status=429, **given)]
    with FaultServer(script) as server, Cassette(path, "record") as tape, pytest.raises(RateLimited):
        asker(tape, server.base_url).complete(asking("hi"))
    (exchange,) = json.loads(path.read_text())["exchanges"]
    assert exchange["response"]["headers"] == kept
    assert list(exchange["request"]) == ["method", "url", "json"]


@pytest.mark.parametrize("name", ["content-type", "retry-after", "retry-after-ms", "date"])
def test_a_key_in_one_of_them_is_not_kept(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    given = {name.replace("-", "_"): f"application/json; x={KEY}"}
    script = [http({"error": {"message": "no"}}, status=429, **given)]
    with FaultServer(script) as server, Cassette(path, "record") as tape, pytest.raises(RateLimited):
        asker(tape, server.base_url).complete(asking("hi"))
    (exchange,) = json.loads(path.read_text())["exchanges"]
    assert exchange["response"]["headers"][name] == "application/json; x=***"


@pytest.mark.parametrize("key", ["none", "hunter2", "Hello", KEY])
def test_whoever_replays_may_carry_any_key(key: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    question = asking("Hello? Is it none or hunter2?")
    with StubServer(["It is none."]) as server, Cassette(path) as tape:
        asker(tape, server.base_url, api_key="pa55").complete(question)
    with Cassette(path) as tape:
        assert asker(tape, server.base_url, api_key=key).complete(question).message.text == "It is none."


# What does not fit


def test_an_unknown_request_names_what_differs_from_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", exchange("far", temperature=1, seed=7, n=2), exchange("What is 2 + 2?"))
    tape = Cassette(path)
    with pytest.raises(CassetteError) as caught:
        asker(tape).complete(asking("What is 2 + 3?"))
    for named in (str(path), f"'{ADDRESS}/chat/completions'", "number 2", "json.messages[0].content", "2 + 2", "2 + 3"):
        assert named in str(caught.value)


def test_a_difference_of_method_or_place_or_shape_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", exchange("hi", url="http://127.0.0.1:8/v1", extra={"a": [1, True]}))
    with pytest.raises(CassetteError, match=r"url: recorded .*:8/v1.*, asked .*:9/v1.*; .*extra.a\[0\]: recorded 1"):
        asker(Cassette(path)).complete(asking("hi"))
    with pytest.raises(CassetteError, match='method: recorded "POST", asked "GET"'):
        sent(Cassette(path), httpx.Request("GET", "http://127.0.0.1:8/v1/chat/completions"))


def test_what_it_names_is_bounded(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", exchange("x" * 100_000, **{f"k{n}": "y" * 1000 for n in range(50)}))
    with pytest.raises(CassetteError) as caught:
        asker(Cassette(path)).complete(asking("z" * 100_000))
    assert len(str(caught.value)) < 2_000


def test_an_exchange_is_played_once(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", exchange("hi", "one"), exchange("other"), exchange("hi", "two"))
    tape = Cassette(path)
    client = asker(tape)
    assert [client.complete(asking("hi")).message.text for _ in range(2)] == ["one", "two"]
    assert repr(tape) == f"<Cassette {str(path)!r} 1 of 3 left>"
    client.complete(asking("other"))
    with pytest.raises(CassetteError):
        client.complete(asking("hi"))
    with pytest.raises(CassetteError):
        client.complete(asking("hi!"))


def test_what_nobody_asked_for_fails_the_test(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", exchange("one"), exchange("two"))
    with pytest.raises(CassetteError, match="number 2"), Cassette(path) as tape:
        asker(tape).complete(asking("one"))
    with pytest.raises(ZeroDivisionError), Cassette(path):
        raise ZeroDivisionError  # which is what the test should show


@pytest.mark.parametrize(
    ("recorded", "same"),
    [
        ({"a": 1, "b": [{"x": 1, "y": 2}]}, True),
        ({"b": [{"y": 2, "x": 1}], "a": 1}, True),
        ({"a": 1.0, "b": [{"x": 1, "y": 2}]}, False),
        ({"a": True, "b": [{"x": 1, "y": 2}]}, False),
        ({"a": 1, "b": [{"x": 1, "y": 2}, {}]}, False),
        ({"a": "1", "b": [{"x": 1, "y": 2}]}, False),
    ],
    ids=repr,
)
def test_bodies_are_compared_as_json(recorded: Any, same: bool, tmp_path: Path) -> None:
    kept = exchange("hi")
    kept["request"] |= {"url": "http://x.invalid/", "json": recorded}
    tape = Cassette(written(tmp_path / "tape.json", kept))
    request = httpx.Request("POST", "http://x.invalid/", content=b'{ "a": 1, "b": [{"x": 1,\n"y": 2}] }')
    if same:
        assert sent(tape, request)
    else:
        with pytest.raises(CassetteError, match="json"):
            sent(tape, request)


def test_a_recording_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", exchange("hi"))
    before = path.read_bytes()

    def test() -> None:
        with StubServer(["one"]) as server, Cassette(path, "record") as tape:
            asker(tape, server.base_url).complete(asking("hi"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        test()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    before = os.umask(0)
    try:
        with Cassette(path, "record"):
            pass
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name != "posix", reason="links need no rights on POSIX")
def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "tapes").mkdir()
    path, target = tmp_path / "tape.json", tmp_path / "tapes" / "tape.json"
    path.symlink_to(target)
    with Cassette(path, "record"):
        pass
    assert path.is_symlink()
    assert target.read_bytes() == path.read_bytes()
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_cannot_be_replaced_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"), Cassette(path, "record"):
        pass
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        b"[",
        b"[]",
        b'{"version": 2, "exchanges": []}',
        b'{"version": 1, "exchanges": [{}]}',
        b'{"version": 1, "exchanges": [{"request": {}, "response": {"status": 200}}]}',
        b'{"version": 1, "exchanges": [{"request": 5, "response": {"status": 1, "headers": {}, "text": ""}}]}',
        b'{"version": 1, "exchanges": [{"request": {}, "response": {"status": "", "headers": {}, "text": ""}}]}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=re.escape(str(path))):
        Cassette(path)


def test_no_file_and_no_mode_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.json"):
        Cassette(tmp_path / "none.json", "replay")
    with pytest.raises(ConfigError, match="'again'"):
        Cassette(tmp_path / "none.json", "again")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", TWO_WAYS)
def test_what_is_kept_is_bounded(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsm_agent.clients.cassette.MAX_BYTES", 3_000)
    with StubServer(["small", "also small", "x" * 4_000]) as server, Cassette(tmp_path / "a", "record") as tape:
        client = asker(tape, server.base_url)
        ask(client, way)
        ask(client, way, request=asking("?" * 100))
        with pytest.raises(CassetteError, match="3000"):
            ask(client, way)
    with StubServer(["small"] * 9) as server:
        client = asker(Cassette(tmp_path / "b", "record"), server.base_url)
        kept = [ask(client, way) for _ in range(2)]
        with pytest.raises(CassetteError, match="3000"):
            kept += [ask(client, way) for _ in range(6)]
    assert not (tmp_path / "b").exists()
    big = written(tmp_path / "c", *[exchange("hi")] * 20)
    with pytest.raises(ConfigError, match="3000"):
        Cassette(big)


def test_bytes_that_are_no_text_are_not_kept(tmp_path: Path) -> None:
    steps = [head(content_type="application/json", content_length="2"), b"\xff\xfe"]
    with FaultServer(steps) as server:
        client = client_of(server, Cassette(tmp_path / "tape.json", "record").network())
        with pytest.raises(CassetteError, match="'application/json'"):
            client.complete(asking("hi"))


# Together with the rest


def test_an_agent_is_tested_with_it(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    asked = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 17, "b": 25}'}}
    path = tmp_path / "tape.json"
    said = [{"role": "assistant", "content": None, "tool_calls": [asked]}, "42"]
    with StubServer(said) as server, Cassette(path) as tape:
        assert Agent(asker(tape, server.base_url), functions=[add]).call("17 + 25?").output == "42"
    with Cassette(path) as tape:
        assert Agent(asker(tape, server.base_url), functions=[add]).call("17 + 25?").output == "42"
    with pytest.raises(CassetteError, match=r"17 \+ 26"):
        Agent(asker(Cassette(path), server.base_url), functions=[add]).call("17 + 26?")


def test_threads_and_loops_share_a_cassette(tmp_path: Path) -> None:
    path = written(tmp_path / "tape.json", *[exchange(f"q{n % 10}", f"a{n % 10}") for n in range(80)])
    heard: list[bool] = []
    with Cassette(path) as tape, asker(tape) as client:

        def work() -> None:
            for n in range(10):
                heard.append(client.complete(asking(f"q{n}")).message.text == f"a{n}")

        async def task(n: int) -> None:
            heard.append((await client.acomplete(asking(f"q{n}"))).message.text == f"a{n}")

        async def tasks() -> None:
            await asyncio.gather(*[task(n) for n in range(10)])

        threads = [threading.Thread(target=work) for _ in range(4)]
        threads += [threading.Thread(target=asyncio.run, args=(tasks(),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert heard == [True] * 80


# How the real server is reached


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_recording_goes_through_the_client_of_ones_own_with_all_that_it_adds(way: str, tmp_path: Path) -> None:
    seen: list[httpx.Request] = []

    def serve(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=completion(f"hello {request.headers['x-api-key']}"))

    path, added = (
        tmp_path / "tape.json",
        {"headers": {"x-api-key": "gate-word-4711"}, "params": {"key": "sk-word-0815"}},
    )
    transport = httpx.MockTransport(serve)
    recorded = []
    for options in ({"client": lambda: httpx.AsyncClient(transport=transport, **added)}, {}):
        with Cassette(path) as tape:
            client = HttpClient(
                "openai-compatible", "m", base_url=ADDRESS, api_key=KEY, network=tape.network(**options)
            )
            recorded.append(ask(client, way)[-1].message.text)
    assert recorded[0] == recorded[1]
    (request,) = seen
    assert request.url.params["key"] == "sk-word-0815"
    assert "word" not in path.read_text()


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_recording_trusts_whom_its_network_trusts(way: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    path = tmp_path / "tape.json"
    with FaultServer(good(way), tls=tls) as server:
        with pytest.raises(ProviderError, match="certificate"), Cassette(path) as tape:
            ask(client_of(server, tape.network()), way)
        with Cassette(path) as tape:
            ask(client_of(server, tape.network(verify=str(tmp_path / "authority.pem"))), way)
        with Cassette(path) as tape:
            assert ask(client_of(server, tape.network()), way)[-1].message.text == "hello"
        assert len(server.requests) == 1


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_recording_goes_through_the_proxy_of_its_network(way: str, tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    with FaultServer(good(way)) as proxy:
        through = proxy.base_url.removesuffix("/v1").replace("//", "//me:proxy-word-4711@")
        with Cassette(path) as tape:
            ask(client_of("http://api.invalid/v1", tape.network(proxy=through)), way)
        with Cassette(path) as tape:
            played = ask(client_of("http://api.invalid/v1", tape.network(proxy=through)), way)
        assert played[-1].message.text == "hello"
        assert [seen.path for seen in proxy.requests] == ["http://api.invalid/v1/chat/completions"]


def test_a_recording_does_not_quote_the_proxys_password(tmp_path: Path) -> None:
    path = tmp_path / "tape.json"
    refusal = {"error": {"message": "me:proxy-word-4711 is refused"}}
    with FaultServer([http(refusal, status=407)]) as proxy, Cassette(path) as tape:
        through = proxy.base_url.removesuffix("/v1").replace("//", "//me:proxy-word-4711@")
        with pytest.raises(ProviderError, match=r"\*\*\* is refused"):
            client_of("http://api.invalid/v1", tape.network(proxy=through)).complete(asking("hi"))
    assert "proxy-word" not in path.read_text()
