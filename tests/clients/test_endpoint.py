"""Does a request go to the right address with the right key, and does the key go nowhere else?"""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest
from conformance.client_requests import ASYNC, REQUEST, TWO_WAYS, WAYS, ask, shown_by
from support.fault_server import CLOSE, END_OF_CHUNKS, SSE_HEAD, FaultServer, Step, chunk, events, http
from support.http_clients import KEY, ROOMY, WHOLE, client_of, completion, good, over_httpx, text

from fsm_agent.clients import HttpClient, client_for
from fsm_agent.errors import ConfigError, ProviderError
from fsm_agent.providers import OpenAIChatCodec, Provider


class TestKeys:
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_a_missing_one_is_missed_at_first_use(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with FaultServer(good(way)) as server:
            client = HttpClient("openai-chat", "gpt-5-mini", base_url=server.base_url)
            with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
                ask(client, way)
            assert server.n_connections == 0
            monkeypatch.setenv("OPENAI_API_KEY", f" {KEY}\n")
            ask(client, way)
            client.close()
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"

    def test_a_new_one_is_used_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with FaultServer(WHOLE) as server, FaultServer(WHOLE) as other, client_for("openai-chat:m") as client:
            for at, key in ((server, KEY), (server, KEY[::-1]), (other, KEY)):
                monkeypatch.setenv("OPENAI_BASE_URL", at.base_url)
                monkeypatch.setenv("OPENAI_API_KEY", key)
                client.complete(REQUEST)
        assert [seen.headers["authorization"][7:] for seen in server.requests] == [KEY, KEY[::-1]]
        assert len(other.requests) == 1

    def test_the_caller_wins_over_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "of-the-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/no")
        with FaultServer(WHOLE) as server, client_for("openai-chat:m", api_key=KEY, base_url=server.base_url) as client:
            client.complete(REQUEST)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"

    def test_none_is_needed_when_a_header_brings_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        headers = {"Authorization": f"Bearer {KEY}", "X-Team": "blue"}
        with (
            FaultServer(WHOLE) as server,
            client_for("openai-chat:m", base_url=server.base_url, headers=headers) as client,
        ):
            client.complete(REQUEST)
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert server.requests[0].headers["x-team"] == "blue"

    def test_azure_has_a_header_of_its_own(self) -> None:
        with FaultServer(WHOLE) as server:
            client = client_for("azure:m", api_key=KEY, base_url=server.base_url.removesuffix("/v1"))
            client.complete(REQUEST)
            client.close()
        assert server.requests[0].headers["api-key"] == KEY
        assert "authorization" not in server.requests[0].headers
        assert server.requests[0].path == "/openai/v1/chat/completions"

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_a_server_that_quotes_it_is_not_quoted(self, way: str) -> None:
        key = "opensesame4711"  # by its looks, nothing tells that it is one
        said = {"error": {"message": f"Incorrect: {key}.", "type": key, "code": key}}
        scripts: list[list[Step]] = [
            [http(said, status=401, x_request_id=key)],
            [http(said, status=500)],
            [http("", status=300, location=f"https://example.invalid/{key}")],
            [http("", content_type=f"text/{key}")],
            [SSE_HEAD, chunk(events(said)), END_OF_CHUNKS],
            [f"HTTP/1.1 200 OK\r\n{key} x: y\r\n\r\n".encode(), CLOSE],
        ]
        for script in scripts:
            with FaultServer(script) as server:
                for network in (ROOMY, over_httpx(ROOMY, server.base_url)):
                    with client_of(server, network, api_key=key) as client, pytest.raises(ProviderError) as caught:
                        ask(client, way)
                    assert key not in shown_by(caught.value)
                    assert "***" in shown_by(caught.value)

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_one_that_comes_back_as_the_id_of_a_request_is_not_kept(self, way: str) -> None:
        with FaultServer([http(completion(), x_request_id=f"id={KEY}")]) as server, client_of(server) as client:
            (*_, reply) = ask(client, way)
        assert reply.request_id == "id=***"

    def test_one_in_a_header_is_not_quoted(self) -> None:
        other = "another.key.of.a.gateway.0815"
        with FaultServer([http({"error": {"message": f"What is {other}?"}}, status=400)]) as server:
            client = client_of(server, headers={"X-Gateway-Key": f"Key {other}"})
            with client, pytest.raises(ProviderError, match=r"What is \*\*\*\?") as caught:
                client.complete(REQUEST)
        assert other not in shown_by(caught.value)

    def test_none_is_shown(self) -> None:
        client = client_of("http://127.0.0.1:1", headers={"x-key": KEY})
        assert repr(client) == "<HttpClient 'openai-compatible:m'>"
        assert KEY not in repr(client._access)
        assert KEY not in repr(client._access.locate())
        assert KEY not in repr(client_for("openai:m", api_key=KEY)._access.locate())  # with two wires

    @pytest.mark.parametrize("wrong", ["", " ", KEY + "\nx", KEY + "é", "\x00" + KEY])
    def test_a_damaged_one_is_refused_unseen(self, wrong: str) -> None:
        with pytest.raises(ConfigError, match="api_key") as caught:
            client_of("http://127.0.0.1:1", api_key=wrong)
        assert KEY not in shown_by(caught.value)

    def test_a_damaged_variable_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GROQ_API_KEY", KEY + "\u2028" + KEY)
        with client_for("groq:m") as client, pytest.raises(ConfigError, match="GROQ_API_KEY") as caught:
            client.complete(REQUEST)
        assert KEY not in shown_by(caught.value)

    @pytest.mark.parametrize("headers", [{"x-a": KEY + "\r\nx-b: c"}, {"x-a": KEY + "ü"}, {"x a": KEY}, {"": KEY}])
    def test_headers_cannot_be_forged(self, headers: dict[str, str]) -> None:
        with pytest.raises(ConfigError) as caught:
            client_of("http://127.0.0.1:1", headers=headers)
        assert KEY not in shown_by(caught.value)

    @pytest.mark.parametrize(
        ("headers", "named"),
        [
            ({"Content-Length": "5"}, "'Content-Length'"),
            ({"transfer-encoding": "chunked"}, "'transfer-encoding'"),
            ({"Connection": "close"}, "'Connection'"),
            ({"upgrade": "h2c"}, "'upgrade'"),
            ({"x(y)": "1"}, "'x(y)'"),
            ({"x:y": "1"}, "'x:y'"),
            ({"x-a": " 1"}, "'x-a'"),
            ({"x-a": "1 "}, "'x-a'"),
            ({"x-a": "1\t2"}, "'x-a'"),
        ],
    )
    def test_nor_may_they_say_where_a_request_ends(self, headers: dict[str, str], named: str) -> None:
        mine = Provider(name="mine", codec=OpenAIChatCodec(), headers=headers)
        for made in (
            lambda: client_of("http://127.0.0.1:1", headers=headers),
            lambda: HttpClient(mine, "m", base_url="http://127.0.0.1:1"),
        ):
            with pytest.raises(ConfigError) as caught:
                made()
            assert named in str(caught.value)

    def test_a_host_of_ones_own_and_an_empty_value_are_sent(self) -> None:
        headers = {"Host": "virtual.example", "x-a": "", "X!#$%&'*+-.^_`|~9": "a b"}
        with FaultServer(WHOLE) as server, client_of(server, headers=headers) as client:
            for way in WAYS:
                ask(client, way)
        for request in server.requests:
            assert request.headers["host"] == "virtual.example"
            assert request.headers["x-a"] == ""
            assert request.headers["x!#$%&'*+-.^_`|~9"] == "a b"


class TestBaseUrls:
    @pytest.mark.parametrize(
        "wrong",
        ["", "localhost:8080", "ftp://example.invalid/", "http://", "http://[", "http://a:b:c/", "/v1", "http://a..b/",
         f"http://{'a' * 64}.invalid"],
    )  # fmt: skip
    def test_what_is_none_is_refused(self, wrong: str) -> None:
        with pytest.raises(ConfigError, match="base_url") as caught:
            client_of(wrong)
        assert repr(wrong) in str(caught.value)

    @pytest.mark.parametrize("wrong", [f"https://me:{KEY}@example.invalid/v1", f"ftp://{KEY}@example.invalid"])
    def test_one_with_a_password_is_refused_unseen(self, wrong: str) -> None:
        with pytest.raises(ConfigError) as caught:
            client_of(wrong)
        assert KEY not in shown_by(caught.value)

    @pytest.mark.parametrize(
        ("given", "path"),
        [("/v1", "/v1/chat/completions"), ("/v1/", "/v1/chat/completions"), ("", "/chat/completions"),
         ("/", "/chat/completions"), ("/a%20b//", "/a%20b/chat/completions"),
         ("/d/x?api-version=2024-10-21", "/d/x/chat/completions?api-version=2024-10-21"),
         ("/v1/chat/completions", "/v1/chat/completions"), ("/v1/chat/completions/?k=1", "/v1/chat/completions?k=1")],
    )  # fmt: skip
    def test_slashes_and_queries_are_kept_apart(self, given: str, path: str) -> None:
        with FaultServer(WHOLE) as server, client_of(server.base_url.removesuffix("/v1") + given) as client:
            client.complete(REQUEST)
        assert server.requests[0].path == path

    def test_one_of_a_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with FaultServer(WHOLE) as server, client_for("ollama:m") as client:
            monkeypatch.setenv("OLLAMA_BASE_URL", server.base_url.removesuffix("/v1"))
            client.complete(REQUEST)
        assert server.requests[0].path == "/v1/chat/completions"
        assert "authorization" not in server.requests[0].headers

    SAID: ClassVar[dict[str, Any]] = {
        "google": {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": "STOP"}]},
        "anthropic": {"type": "message", "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"},
    }
    ENDS: ClassVar[dict[str, str]] = {"google": "/models/m:generateContent", "anthropic": "/messages"}

    @pytest.mark.parametrize(
        ("provider", "given", "path"),
        [("google", "", "/v1beta"), ("google", "/v1", "/v1"), ("google", "/google/", "/google/v1beta"),
         ("google", "/google/v1beta1/", "/google/v1beta1"), ("google", "/v1/proxy", "/v1/proxy/v1beta"),
         ("anthropic", "", "/v1"), ("anthropic", "/v1", "/v1"), ("anthropic", "/api/anthropic/", "/api/anthropic/v1"),
         ("anthropic", "/x/v1beta", "/x/v1beta"), ("anthropic", "/v1/proxy", "/v1/proxy/v1"),
         ("anthropic", "/x/v1/messages", "/x/v1")],
    )  # fmt: skip
    def test_it_needs_no_version_as_the_providers_own_tools_have_it(
        self, provider: str, given: str, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with FaultServer([http(self.SAID[provider])]) as server:
            address = server.base_url.removesuffix("/v1") + given
            monkeypatch.setenv(f"{provider.upper()}_BASE_URL", address)
            for base_url in (None, address):
                with client_for(f"{provider}:m", api_key=KEY, base_url=base_url) as client:
                    client.complete(REQUEST)
        assert [request.path for request in server.requests] == [path + self.ENDS[provider]] * 2

    def test_one_where_nothing_is_found_is_shown(self) -> None:
        with FaultServer([http({"detail": "Not Found"}, status=404)]) as server:
            client = client_of(f"{server.base_url}/x?code={KEY}")
            with client, pytest.raises(ProviderError, match="/v1/x/chat/completions'") as caught:
                client.complete(REQUEST)
        assert KEY not in shown_by(caught.value)

    def test_a_missing_one_is_missed_at_first_use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
        client = client_for("azure:m", api_key=KEY)
        with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
            client.complete(REQUEST)

    def test_tokens_in_the_path_are_not_shown_but_the_model_is(self) -> None:
        with FaultServer([CLOSE]) as server:
            client = client_for("openai-compatible:gpt-4o-mini", base_url=f"{server.base_url}/gpt-4o-mini/t0ken-4711/x")
            with client, pytest.raises(ProviderError, match=r"/v1/gpt-4o-mini/\*\*\*/x/chat/completions'"):
                client.complete(REQUEST)

    def test_queries_are_not_shown(self) -> None:
        with FaultServer([CLOSE]) as server:
            client = client_of(f"{server.base_url}?code={KEY}x")
            with client, pytest.raises(ProviderError) as caught:
                client.complete(REQUEST)
        assert KEY not in shown_by(caught.value)

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_a_proxy_does_not_stand_before_this_machine(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, "http://127.0.0.1:9")
        with FaultServer(good(way)) as server:
            for host in ("127.0.0.1", "localhost"):
                with client_of(server.base_url.replace("127.0.0.1", host)) as client:
                    assert text(ask(client, way)[-1]) == "hello"


def test_what_starts_a_server_is_located_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting takes seconds, in which other tasks go on."""
    threads = list[bool]()

    def start(model: str | None) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        raise ConfigError("no server here")

    monkeypatch.setattr("fsm_agent.clients.local.server.local_server", start)
    client = client_for("local:")
    for way in ASYNC:
        with pytest.raises(ConfigError, match="no server here"):
            ask(client, way)
    assert threads == [False] * len(ASYNC)
