"""Does a request travel as its `Network` says: whom it trusts, through which proxy, over what?"""

from __future__ import annotations

import asyncio
import itertools
import json
import pickle
import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
import trustme
from conformance.client_requests import REQUEST, TWO_WAYS, ask, outcomes, shown_by
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived, StreamEnded
from support.fault_server import FaultServer, http
from support.http_clients import STREAM, client_of, completion, good, text
from support.loopback import Listener

from fsm_agent.clients import Network, client_for
from fsm_agent.errors import ConfigError, ProviderError, TimedOut


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@contextmanager
def http2_server(tls: ssl.SSLContext) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the base URL of an HTTP/2 server, and the headers of its requests, by connection."""
    seen: list[dict[str, str]] = []

    def serve() -> None:
        with suppress(OSError):
            for number in itertools.count():
                if (connection := listener.accept()) is None:
                    return
                answer(tls.wrap_socket(connection, server_side=True), number)

    def answer(connection: socket.socket, number: int) -> None:
        with connection:
            state = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
            state.initiate_connection()
            connection.sendall(state.data_to_send())
            while data := connection.recv(65536):
                for event in state.receive_data(data):
                    if isinstance(event, RequestReceived):
                        assert "connection" not in dict(event.headers)
                        seen.append({**dict(event.headers), "connection": str(number)})
                    if isinstance(event, StreamEnded):
                        headers = [(":status", "200"), ("content-type", "application/json")]
                        state.send_headers(event.stream_id, headers)
                        state.send_data(event.stream_id, json.dumps(completion()).encode(), end_stream=True)
                connection.sendall(state.data_to_send())

    listener = Listener()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"https://{listener.address}/v1", seen
    listener.close()
    thread.join(5)


@pytest.mark.usefixtures("over")
class TestTLS:
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_a_certificate_of_ones_own(self, way: str, authority: trustme.CA, tls: ssl.SSLContext) -> None:
        context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        with authority.cert_pem.tempfile() as path:
            for trusted in (path, context, False):
                with FaultServer(good(way), tls=tls) as server, client_of(server, Network(verify=trusted)) as client:
                    assert text(ask(client, way)[-1]) == "hello"

    @pytest.mark.parametrize("over", [None], indirect=True)
    def test_one_of_the_environment_is_trusted_from_then_on(
        self, authority: trustme.CA, tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with authority.cert_pem.tempfile() as path, FaultServer(good("complete"), tls=tls) as server:
            with client_of(server) as client:
                assert isinstance(outcomes(client, "complete", None)[0], TimedOut)
            monkeypatch.setenv("SSL_CERT_FILE", path)
            with client_of(server) as client:
                assert text(ask(client, "complete")[-1]) == "hello"

    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_one_that_nobody_trusts_is_refused_for_good(self, way: str, tls: ssl.SSLContext) -> None:
        with FaultServer(good(way), tls=tls) as server, client_of(server) as client:
            error = outcomes(client, way, None)[0]
        assert isinstance(error, TimedOut)
        assert "certificate" in error.message
        assert not error.retryable
        assert server.requests == []

    @pytest.mark.parametrize("over", [None], indirect=True)
    def test_a_cancelled_request_waits_for_no_farewell(self, authority: trustme.CA, tls: ssl.SSLContext) -> None:
        """A busy server sends none, and the connection would stay open for half a minute."""

        def wait_for_end(connection: socket.socket) -> None:
            while socket.socket.recv(connection, 65536):  # what is below TLS
                pass

        async def main() -> bool:
            asking = asyncio.create_task(client.acomplete(REQUEST))
            assert await asyncio.to_thread(server.wait_for_requests, 1)
            asking.cancel()
            return await asyncio.to_thread(server.wait_until_all_closed)

        with (
            authority.cert_pem.tempfile() as path,
            FaultServer([wait_for_end], tls=tls) as server,
            client_of(server, Network(verify=path)) as client,
        ):
            assert asyncio.run(main())

    @pytest.mark.parametrize("over", [None], indirect=True)
    def test_http_2_of_a_users_client_is_spoken(self, authority: trustme.CA) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
        tls.set_alpn_protocols(["h2"])
        trust = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        with (
            http2_server(tls) as (base_url, seen),
            client_of(base_url, Network(client=lambda: httpx.AsyncClient(http2=True, verify=trust))) as client,
        ):
            assert [text(ask(client, "complete")[-1]) for _ in range(2)] == ["hello", "hello"]
        assert [request["connection"] for request in seen] == ["0", "0"]
        assert all(":path" in request and "keep-alive" not in request for request in seen)

    @pytest.mark.parametrize("over", [None], indirect=True)
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_a_url_without_a_port_is_as_secure(
        self, way: str, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Like the URLs of all providers.  Here its name and port lead to the server of the test."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("api.localhost").configure_cert(tls)
        look_up, asked = socket.getaddrinfo, []

        def here(host: Any, port: Any, *more: Any, **options: Any) -> Any:
            asked.append((host, port))
            return look_up("127.0.0.1", server_port, *more, **options)

        with authority.cert_pem.tempfile() as path, FaultServer(good(way), tls=tls) as server:
            server_port = int(server.base_url.rpartition(":")[2].removesuffix("/v1"))
            monkeypatch.setattr(socket, "getaddrinfo", here)
            with client_of("https://api.localhost/v1", Network(verify=path)) as client:
                assert text(ask(client, way)[-1]) == "hello"
            assert server.requests[0].headers["host"] == "api.localhost"
        assert [(str(host).strip("b'"), port) for host, port in asked] == [("api.localhost", 443)]


@pytest.mark.usefixtures("over")
class TestProxy:
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_all_goes_through_it(self, way: str) -> None:
        with FaultServer(good(way)) as server:
            proxy = server.base_url.removesuffix("/v1").replace("//", "//someone:pass-4711@")
            network = Network(proxy=proxy)
            with client_of("http://api.invalid/v1", network) as client:
                assert text(ask(client, way)[-1]) == "hello"
        seen = server.requests[0]
        assert seen.path == "http://api.invalid/v1/chat/completions"
        assert seen.headers["proxy-authorization"].startswith("Basic ")
        assert "4711" not in repr(network)

    @pytest.mark.parametrize("over", [None], indirect=True)
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_what_it_says_of_its_password_is_not_shown(self, way: str) -> None:
        refusal = http({"error": {"message": "not with pass-4711"}}, status=403)
        with FaultServer([refusal]) as server:
            proxy = server.base_url.removesuffix("/v1").replace("//", "//someone:pass-4711@")
            with client_of("http://api.invalid/v1", Network(proxy=proxy)) as client:
                error = outcomes(client, way, None)[0]
        assert isinstance(error, ProviderError)
        assert "4711" not in str(error)

    @pytest.mark.parametrize("over", [None], indirect=True)
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_nor_what_one_of_the_environment_says(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with FaultServer([http({"error": {"message": "not with pass-4711"}}, status=403)]) as server:
            monkeypatch.setenv("http_proxy", server.base_url.replace("//", "//someone:pass-4711@").removesuffix("/v1"))
            with client_of("http://api.invalid/v1") as client:
                error = outcomes(client, way, None)[0]
            assert b"4711" not in pickle.dumps(client_for("openai:m"))
        assert isinstance(error, ProviderError)
        assert "4711" not in str(error)

    @pytest.mark.parametrize("over", [None], indirect=True)
    @pytest.mark.parametrize("way", TWO_WAYS)
    def test_the_one_of_the_environment(self, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with FaultServer(good(way)) as proxy, FaultServer(good(way)) as here:
            monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
            for base_url in ("http://api.invalid/v1", here.base_url):
                with client_of(base_url) as client:
                    assert text(ask(client, way)[-1]) == "hello"
        assert [seen.path for seen in proxy.requests] == ["http://api.invalid/v1/chat/completions"]
        assert len(here.requests) == 1

    @pytest.mark.parametrize("over", [None], indirect=True)
    @pytest.mark.parametrize("way", TWO_WAYS)
    @pytest.mark.parametrize(
        "url", ["http://user:secret@host:x", "socks://user:secret@host", " http://user:secret@host"]
    )
    def test_one_of_the_environment_that_is_none_is_named(
        self, way: str, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("all_proxy", url)
        with (
            client_of("http://api.invalid/v1") as client,
            pytest.raises(ConfigError, match="the URL of the proxy in ALL_PROXY for 'host") as caught,
        ):
            ask(client, way)
        assert "secret" not in shown_by(caught.value)


PROXY = "http://user:secret@host:1"


class TestNetwork:
    @pytest.mark.parametrize(
        ("wrong", "named"),
        [
            ({"proxy": "user:secret@host:1"}, "host:3128"),
            ({"proxy": "ftp://user:secret@host"}, "'host'"),
            ({"proxy": "http://user:secret@"}, "proxy"),
            ({"proxy": "http://user:secret@host:x"}, "'host:x'"),
            ({"proxy": 5}, "proxy"),
            ({"verify": "/no/such.pem"}, "'/no/such.pem'"),
            ({"client": httpx.Client()}, "httpx.AsyncClient"),
            ({"client": httpx.AsyncClient(), "proxy": PROXY}, "proxy"),
            ({"client": httpx.AsyncClient, "verify": False}, "verify"),
            ({"client": httpx.AsyncClient(), "max_connections": 5}, "max_connections"),
            ({"max_connections": 0}, "max_connections"),
            ({"read_s": 0}, "read_s"),
            ({"idle_s": float("nan")}, "idle_s"),
        ],
    )
    def test_what_cannot_be_right(self, wrong: dict[str, Any], named: str) -> None:
        with pytest.raises(ConfigError) as caught:
            Network(**wrong)
        assert named in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_what_a_proxy_needs_that_is_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "socksio", None)  # as if it were not there
        with pytest.raises(ConfigError) as caught:
            Network(proxy="socks5://me:secret@h:1")
        assert "httpx[socks]" in str(caught.value)
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
    def test_a_variable_that_names_nothing(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SSL_CERT_FILE")
        monkeypatch.setenv(variable, "/no/such")
        with client_of("https://127.0.0.1:1/v1") as client, pytest.raises(ConfigError, match=variable):
            client.complete(REQUEST)

    def test_a_file_that_holds_no_certificate(self, tmp_path: Any) -> None:
        (tmp_path / "x.pem").write_text("nothing")
        with client_of("https://127.0.0.1:1/v1", Network(verify=str(tmp_path / "x.pem"))) as client:
            for way in TWO_WAYS:
                with pytest.raises(ConfigError, match=r"x\.pem"):
                    ask(client, way)


@pytest.mark.system
@pytest.mark.parametrize("way", TWO_WAYS)
def test_on_a_real_port(way: str, authority: trustme.CA, tls: ssl.SSLContext) -> None:
    with authority.cert_pem.tempfile() as path, FaultServer(good(way), tls=tls) as server, FaultServer(STREAM) as proxy:
        with client_of(server, Network(verify=path)) as client:
            assert text(ask(client, way)[-1]) == "hello"
        with client_of("http://api.invalid/v1", Network(proxy=proxy.base_url.removesuffix("/v1"))) as client:
            assert text(ask(client, way)[-1]) == "hello"
