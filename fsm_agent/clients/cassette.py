"""Recording and replay of HTTP exchanges, for tests without key and network.

A `Cassette` is a readable file of HTTP exchanges.  It is recorded once, with a key; after that the tests need neither
key nor network.  Secrets are masked before anything is written: of headers only a few harmless ones are kept, and the
request's own key and everything else that looks like a key or an account is replaced.
"""

from __future__ import annotations

import json
import operator
import os
import re
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, nullcontext
from pathlib import Path
from typing import Any, Literal, Self

from fsm_agent._internal.redaction import (
    EXTENSION,
    MIN_ANYWHERE_CHARS,
    Secrets,
    secrets_in_headers,
    secrets_in_url,
    shown_url,
)
from fsm_agent._internal.with_options_shown import with_options_shown
from fsm_agent.clients.http_library import httpx
from fsm_agent.clients.httpx_clients import make_client
from fsm_agent.clients.log_masking import masked_logs
from fsm_agent.clients.network import OF_OWN_CLIENTS, Network
from fsm_agent.errors import ConfigError
from fsm_agent.runtime.private_files import write_private

VERSION = 1
MAX_BYTES = 50_000_000  # of a cassette
MAX_SHOWN_CHARS = 80  # of a value that differs
MAX_SHOWN_DIFFERENCES = 5

_KEPT_HEADERS = ("content-type", "retry-after", "retry-after-ms", "date")
_AFTER_EVENT = re.compile(r"(?<=\n\n)|(?<=\r\n\r\n)")


class CassetteError(AssertionError):
    """A test does not match its cassette: a request was never recorded, or an exchange was never replayed.

    Examples:
        >>> import pathlib, tempfile
        >>> from fsm_agent import Agent
        >>> from fsm_agent.clients import client_for
        >>> tape = pathlib.Path(tempfile.mkdtemp(), "tape.json")
        >>> _ = tape.write_text('{"version": 1, "exchanges": []}')
        >>> client = client_for("openai:gpt-5-mini", api_key="sk-example", network=Cassette(tape).network())
        >>> Agent(client).call("Hello")     # doctest: +ELLIPSIS
        Traceback (most recent call last):
        fsm_agent.clients.cassette.CassetteError: cassette '...' has no reply to POST '...': it is empty
    """


class Cassette:
    """Recorded HTTP exchanges, replayed to equal requests.

    ``with Cassette("weather.json") as tape: agent = Agent(client_for(model, api_key=…, network=tape.network()))``

    Requests are equal when method, URL and body are, after masking (JSON in any order and spacing).  Each exchange is
    played once, equal ones in the order of recording.  Streams are replayed event by event.  While recording, the
    caller gets the response as a replay will give it, once it is complete.  Network failures are not recorded.
    Safe to use from any number of threads and event loops at once.

    Args:
        path: The file.
        mode: ``"replay"``; ``"record"`` anew, which replaces the file when the ``with`` block succeeds; ``"auto"``:
            replay if the file exists, otherwise record.

    Raises:
        ConfigError: The mode is unknown, or there is no file to replay, or the file is not a cassette.

    Examples:
        >>> with Cassette("replies.json") as tape:  # recorded at the first run, replayed from then on
        ...     client = client_for("openai:gpt-5-mini", api_key="sk-example", network=tape.network())
        ...     client.name
        'openai:gpt-5-mini'
    """

    def __init__(self, path: str | os.PathLike[str], mode: Literal["replay", "record", "auto"] = "auto") -> None:
        if mode not in ("replay", "record", "auto"):
            raise ConfigError(f"mode: expected 'replay', 'record' or 'auto', got {mode!r:.80}")
        self.path = Path(path)
        self.is_recording = mode == "record" or (mode == "auto" and not self.path.exists())
        self._exchanges: list[Mapping[str, Any]] = [] if self.is_recording else _load(self.path)
        self._left = dict(enumerate([_identity(exchange["request"]) for exchange in self._exchanges]))
        self._size_bytes = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        doing = "recording" if self.is_recording else f"{len(self._left)} of {len(self._exchanges)} left"
        return f"<Cassette {str(self.path)!r} {doing}>"

    @with_options_shown(Network)
    def network(self, **options: Any) -> Network:
        """Return a network that this cassette serves; options are those of `Network`.

        A ``client`` sends the requests that are recorded.
        """
        tape = _Tape(self, Network(**options))
        rest = {name: value for name, value in options.items() if name not in OF_OWN_CLIENTS | {"client"}}
        return Network(client=lambda: httpx.AsyncClient(transport=tape), **rest)

    def play(self, request: httpx.Request) -> httpx.Response:
        """Return the next recorded response to ``request``.

        Raises:
            CassetteError: No recorded exchange is left for it.
        """
        recorded_form = _recorded_form(request, Secrets(_request_secrets(request)))
        # The key of a replay may differ from the recorded one, and may equal a word of the dialog.
        identities = {_identity(recorded_form), _identity(_recorded_form(request, Secrets()))}
        with self._lock:
            index = next((index for index, identity in self._left.items() if identity in identities), None)
            if index is None:
                raise CassetteError(self._mismatch(recorded_form))
            del self._left[index]
        return _response(self._exchanges[index]["response"])

    def record(self, request: httpx.Request, response: httpx.Response, body: bytes) -> httpx.Response:
        """Record an exchange; return the response as a replay will give it.

        Raises:
            CassetteError: The response cannot be kept.
        """
        request_secrets = _request_secrets(request)
        response_secrets = secrets_in_headers(response.headers.multi_items())
        secrets = Secrets(
            [*request_secrets, *[secret for secret in response_secrets if len(secret) >= MIN_ANYWHERE_CHARS]]
        )
        recorded = {
            "status": response.status_code,
            "headers": {
                name: secrets.mask(response.headers[name]) for name in _KEPT_HEADERS if name in response.headers
            },
            **_body(body, response.headers.get("content-type", ""), secrets),
        }
        exchange = {"request": _recorded_form(request, Secrets(request_secrets)), "response": recorded}
        with self._lock:
            self._size_bytes += len(_document([exchange]))
            if self._size_bytes > MAX_BYTES:
                raise CassetteError(f"cassette {str(self.path)!r}: expected at most {MAX_BYTES} bytes, got more")
            self._exchanges.append(exchange)
        return _response(recorded)

    def _mismatch(self, request: Mapping[str, Any]) -> str:
        head = f"cassette {str(self.path)!r} has no reply to {request['method']} {request['url']!r}"
        if not self._exchanges:
            return f"{head}: it is empty"
        leaves = _leaves(request)
        candidates = sorted(self._left) or range(len(self._exchanges))
        compared = [(_differences(_leaves(self._exchanges[index]["request"]), leaves), index) for index in candidates]
        differences, nearest = min(compared, key=lambda one: len(one[0]))
        if not differences:
            return f"{head}: all that were recorded for it have been played"
        which = f"the nearest {'of those left' if self._left else 'of those played'} is number {nearest + 1}"
        more = len(differences) - MAX_SHOWN_DIFFERENCES
        shown = differences[:MAX_SHOWN_DIFFERENCES] + ([f"and {more} more"] if more > 0 else [])
        return f"{head}; {which}, which differs in {'; '.join(shown)}"

    def _assert_played(self) -> None:
        if self._left:
            request = self._exchanges[min(self._left)]["request"]
            raise CassetteError(
                f"cassette {str(self.path)!r}: expected requests for all {len(self._exchanges)} exchanges,"
                f" {len(self._left)} got none; the first is number {min(self._left) + 1}: {request['method']}"
                f" {request['url']!r}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.is_recording:
            _store(self.path, self._exchanges)
        elif kind is None:
            self._assert_played()


class _Tape(httpx.AsyncBaseTransport):
    """A transport that replays, or forwards to the real server and records."""

    def __init__(self, cassette: Cassette, network: Network) -> None:
        self._cassette = cassette
        self._network = network  # to the real server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        if not self._cassette.is_recording:
            return self._cassette.play(request)
        with self._mask_logs(request):
            async with self._client(request.url) as client:
                sent = _with_additions(client, request)
                response = await client.send(sent, stream=True, follow_redirects=False)
                body = bytearray()
                async with aclosing(response):
                    async for data in response.aiter_bytes():
                        _append(body, data)
                return self._record(request, sent, response, bytes(body))

    def _record(
        self, request: httpx.Request, sent: httpx.Request, response: httpx.Response, body: bytes
    ) -> httpx.Response:
        """Record the request as it comes again; what the client added to it, such as a key, is masked in the reply."""
        secrets = frozenset([*_request_secrets(request), *_request_secrets(sent)])
        request.extensions[EXTENSION] = lambda: secrets
        return self._cassette.record(request, response, body)

    def _client(self, url: httpx.URL) -> AbstractAsyncContextManager[httpx.AsyncClient]:
        """Return the client that sends requests: the user's, which stays open, or one for this request."""
        own = self._network.client
        if isinstance(own, httpx.AsyncClient):
            return nullcontext(own)
        return own() if own is not None else make_client(self._network, url)

    def _mask_logs(self, request: httpx.Request) -> AbstractContextManager[None]:
        """Mask logs, with the secrets of the network declared too."""
        secrets = self._network.secrets.union(_declared_secrets(request))
        request.extensions[EXTENSION] = lambda: secrets
        return masked_logs(Secrets(secrets))


class _Pieces(httpx.AsyncByteStream):
    """A response body in chunks."""

    def __init__(self, pieces: list[str]) -> None:
        self._pieces = [piece.encode("utf-8", "surrogatepass") for piece in pieces]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def _with_additions(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Request:
    """Return a request with the headers, cookies and parameters that its client adds to all."""
    return client.build_request(
        request.method, request.url, headers=request.headers, content=request.content, extensions=request.extensions
    )


def _append(body: bytearray, data: bytes) -> None:
    body += data
    if len(body) > MAX_BYTES:
        raise CassetteError(f"the reply: expected at most {MAX_BYTES} bytes, which a cassette can keep, got more")


def _response(recorded: Mapping[str, Any]) -> httpx.Response:
    if "sse" in recorded:  # of an empty stream, no events
        pieces = recorded["sse"]
    else:
        pieces = [json.dumps(recorded["json"]) if "json" in recorded else recorded["text"]]
    return httpx.Response(recorded["status"], headers=recorded["headers"], stream=_Pieces(pieces))


def _declared_secrets(request: httpx.Request) -> Iterable[str]:
    """Return the secrets of a request that its sender declared."""
    find = request.extensions.get(EXTENSION)
    return find() if find is not None else ()


def _request_secrets(request: httpx.Request) -> list[str]:
    """Return the secrets of a request: those its sender declared, and those under names known for secrets."""
    return [
        *_declared_secrets(request),
        *secrets_in_headers(request.headers.multi_items()),
        *secrets_in_url(str(request.url)),
    ]


def _recorded_form(request: httpx.Request, secrets: Secrets) -> dict[str, Any]:
    """Return the part of a request that is recorded and compared."""
    form: dict[str, Any] = {"method": request.method, "url": secrets.mask(shown_url(str(request.url)))}
    content = request.content
    return form | _body(content, request.headers.get("content-type", ""), secrets) if content else form


def _body(body: bytes, content_type: str, secrets: Secrets) -> dict[str, Any]:
    """Return a body under the name of its kind: ``json``, ``sse`` (its events) or ``text``."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise CassetteError(
            f"a body of type {content_type!r}: expected text in UTF-8, which a cassette can keep, got other bytes"
        ) from error
    if content_type.partition(";")[0].strip().lower() == "text/event-stream":
        return {"sse": [event for event in _AFTER_EVENT.split(secrets.mask(text)) if event]}
    try:
        # Serialized anew before masking, so that no escape hides a secret.
        return {"json": json.loads(secrets.mask_json(json.dumps(json.loads(text), ensure_ascii=False)))}
    except (ValueError, RecursionError):
        return {"text": secrets.mask(text)}


def _identity(request: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal requests, in any order of keys."""
    return json.dumps(request, sort_keys=True)


def _leaves(request: Mapping[str, Any]) -> dict[str, str]:
    """Return every scalar of a request by its path, as JSON."""
    leaves = dict[str, str]()
    waiting: list[tuple[str, Any]] = [("", dict(request))]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += [(f"{path}.{name}" if path else str(name), value[name]) for name in reversed(value)]
        elif isinstance(value, list) and value:
            waiting += [(f"{path}[{index}]", value[index]) for index in reversed(range(len(value)))]
        else:
            leaves[path] = json.dumps(value, ensure_ascii=False)
    return leaves


def _differences(recorded: Mapping[str, str], sent: Mapping[str, str]) -> list[str]:
    paths = [*sent, *[path for path in recorded if path not in sent]]
    nothing = "nothing"
    return [
        f"{path}: recorded {_shorten(recorded.get(path, nothing))}, asked {_shorten(sent.get(path, nothing))}"
        for path in paths
        if recorded.get(path) != sent.get(path)
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}…"


def _document(exchanges: list[Mapping[str, Any]]) -> bytes:
    text = json.dumps({"version": VERSION, "exchanges": exchanges}, ensure_ascii=False, indent=2)
    return f"{text}\n".encode("utf-8", "surrogatepass")


def _load(path: Path) -> list[Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"no cassette can be read from {str(path)!r}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{str(path)!r}: expected a cassette of at most {MAX_BYTES} bytes, got more")
    try:
        document = json.loads(data.decode("utf-8", "surrogatepass"))
        if document["version"] != VERSION:
            raise ConfigError(f"cassette {str(path)!r}: expected version {VERSION}, got {document['version']!r:.80}")
        exchanges: list[Mapping[str, Any]] = document["exchanges"]
        for exchange in exchanges:
            _identity(exchange["request"])
            _leaves(exchange["request"])
            operator.index(_response(exchange["response"]).status_code)
    except ConfigError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r}: expected a cassette: {type(error).__name__}: {error}") from error
    return exchanges


def _store(path: Path, exchanges: list[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_private(path.resolve(), _document(exchanges))  # a link stays one
