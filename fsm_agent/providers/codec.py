"""The codec protocol, the profile of a model, and the parser of server-sent events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import astuple

from fsm_agent._internal.lazy_import import deferred, pydantic_core
from fsm_agent._internal.values import Value
from fsm_agent.errors import BadReply
from fsm_agent.lifecycle.effects import Request
from fsm_agent.messages.event import Delta
from fsm_agent.messages.reply import OutputMode, Reply
from fsm_agent.providers.arriving_text import mended
from fsm_agent.providers.encoding import AFRESH, EncodedJson, Encoding

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

MAX_EVENT_BYTES = 64 * 1024 * 1024  # of one event of a stream: the largest hold a generated image
_FEW_BYTES = 400  # in which JSON is nested 200 deep at most, as deep as pydantic-core reads it
LEFT_OUT = "was left out: the model does not take it here"  # the end of what `Codec.adapted` says of a setting
_decode_json = msgspec.json.Decoder().decode
_SILENT_FIELDS = frozenset({b"", b"data", b"id", b"retry"})
_MAX_STRAY = 1000  # bytes
_BOM = b"\xef\xbb\xbf"
_REQUEST_ID = (
    *("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-ms-request-id", "x-goog-request-id"),
    *("x-generation-id", "cf-ray"),
)


class Profile(Value, frozen=True, kw_only=True):
    """The capabilities of a model and the names of its fields.  Data; override what differs.

    A need of a request that the model does not support is a `UsageError` before anything is sent.  Preferences are
    replaced instead: see `adaptations`; the reply names them.
    """

    native_schema: bool = True  # takes a JSON schema for its answer; otherwise the schema is described in words
    schema_with_functions: bool = True  # takes both at once
    output_mode: OutputMode = "native"  # how it is best asked for typed answers; "native" only as far as it takes that
    strict_functions: bool = True  # knows `strict` on functions and schemas
    max_tokens_name: str = "max_tokens"
    least_max_tokens: int = 1  # smaller limits are raised to this
    seed_name: str = "seed"
    system_role: Literal["system", "developer", "user"] = "system"
    # The field for returning reasoning to the model: a key of its message, or "thinking" (content parts); or None.
    reasoning_name: (
        Literal["reasoning_content", "reasoning", "reasoning_details", "thinking", "encrypted_content"] | None
    ) = None
    temperature: bool = True  # and top_p
    stop: bool = True
    images: bool = True  # and PDFs
    logprobs: bool = True
    stream_usage: bool = True  # `stream_options: {include_usage: true}` is understood
    named_tool_choice: bool = True  # otherwise the one function is offered alone and required
    required_tool_choice: bool = True  # otherwise the model is left free to call or not
    user_after_results: bool = True  # takes a user's message directly behind the results of functions
    call_id_chars: int | None = None  # the ids of calls have just so many letters and digits; None: any do
    # "guided": the model does not call functions by itself; the client chooses one and fills it in, step by step.
    function_calls: Literal["native", "guided"] = "native"
    # Tools of the provider that it can use: kind, and its type on the wire.
    hosted_tools: Mapping[str, str] = {}
    extra_body: Mapping[str, Any] = {}  # sent with every request

    def __hash__(self) -> int:
        return hash(tuple([value for value in astuple(self) if not isinstance(value, Mapping)]))


class RequestForm(NamedTuple):
    """A request as a model can take it, after the decision how the model is asked for the output.

    The request's own output remains only in the mode "native"; in the mode "function" a function takes its place.
    """

    request: Request
    mode: OutputMode | None = None  # None: the output is text
    words: str | None = None  # for the system prompt, in the mode "prompted"
    notes: tuple[str, ...] = ()  # descriptions of what is not as the prompt or the profile would have it


class Decoder(Protocol):
    """Decodes the bytes of one streamed response into deltas and finally a reply.

    The deltas, and the reply or error, do not depend on how the bytes are cut: an error in the stream leaves the deltas
    before it unchanged.
    """

    @property
    def is_done(self) -> bool:
        """True after the end marker of the stream, even if the connection stays open."""

    @property
    def has_failed(self) -> bool:
        """True if the stream reported an error or is not a stream: the rest is ignored, and `finish` raises."""

    def feed(self, data: bytes) -> list[Delta]:
        """Take the next bytes; return the deltas that they complete."""

    def end(self) -> list[Delta]:
        """Take the end of the bytes; return the last deltas."""

    def finish(self) -> Reply:
        """Return the whole reply, at the end of the bytes; raise `ProviderError` if there is none."""


class Codec(Protocol):
    """Translates one wire format: values to JSON, bytes to values.  Pure."""

    name: str

    @abstractmethod
    def path(self, model: str, *, stream: bool) -> str:
        """Return the path of requests behind the base URL; it begins with a slash."""

    @abstractmethod
    def headers(self, api_key: str | None) -> dict[str, str]:
        """Return the headers that carry the key and the version of the API."""

    @abstractmethod
    def encode(
        self, request: Request, *, model: str, profile: Profile, stream: bool, encoding: Encoding = AFRESH
    ) -> dict[str, Any]:
        """Return the request's JSON body; raise `UsageError` for what this format or model does not support."""

    @abstractmethod
    def request_form(self, request: Request, profile: Profile) -> RequestForm:
        """Return the request as `encode` writes it, with the mode in which it asks for the output."""

    @abstractmethod
    def adapted(self, request: Request, profile: Profile) -> tuple[str, ...]:
        """Return descriptions of what `encode` changes or omits because the model does not support it."""

    @abstractmethod
    def request_headers(self, request: Request, profile: Profile) -> dict[str, str]:
        """Return the headers that this request needs beside `headers`; values are appended to existing lists."""

    @abstractmethod
    def decode(self, status: int, headers: Mapping[str, str], body: bytes) -> Reply:
        """Return the reply in a whole response; raise `ProviderError`.  Header names are lower-case."""

    def attributed(self, reply: Reply, request: Request) -> Reply:
        """Return the reply to a request with hosted tools or an extra body, in which their calls are function calls.

        Most codecs know them without the request.

        Raises:
            BadReply: The model asks for what nobody can answer.
        """
        return reply

    @abstractmethod
    def decoder(self, headers: Mapping[str, str]) -> Decoder:
        """Return a decoder for one streamed response of status 200."""


class ServerEvent(NamedTuple):
    """One event of a stream."""

    event: str  # its name; "" when it has none, "error" also for the field of that name, which some servers send
    data: bytes


# As `ServerEvent` does, in half the time.
_event: Callable[[tuple[str, bytes]], ServerEvent] = partial(tuple.__new__, ServerEvent)


class EventStream:
    """Parses the bytes of a response into server-sent events, however the bytes are cut.

    It follows the HTML standard (https://html.spec.whatwg.org/multipage/server-sent-events.html, read
    2026-11): lines end in LF, CRLF or CR and nothing else.  Unlike there, the last event needs no blank line
    behind it, and a body that begins like JSON or HTML is not a stream: it is kept whole in `document`.

    Args:
        max_event_bytes: An event longer than this is an error.

    Attributes:
        error: The reason for ignoring the rest of the stream, if any.
        stray: The beginning of the first line that is no part of a stream.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.error: BadReply | None = None
        self.stray = b""
        self._max = max_event_bytes
        self._document: bytearray | None = None
        self._begun = False
        self._bom: bytes | None = b""  # the very first bytes, while they may be a byte order mark
        self._after_cr = False
        self._line: list[bytes] = []  # the pieces of an incomplete line
        self._line_bytes = 0
        self._event = ""
        self._data: list[bytes] = []
        self._data_bytes = 0

    @property
    def document(self) -> bytes | None:
        """The body so far, if it is not an event stream."""
        return None if self._document is None else bytes(self._document)

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Take the next bytes; return the events that end in them, up to an `error`."""
        events: list[ServerEvent] = []
        try:
            if self.error is None:
                self._cut(data, events)
        except BadReply as error:
            self.error = error
        return events

    def _cut(self, data: bytes, events: list[ServerEvent]) -> None:
        if not self._begun:
            data = self._begin(data)
        if self._document is not None:
            self._check(len(self._document) + len(data))
            self._document += data
            return
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data and b"\r" not in data:
            data = self._take_whole_ones(data, events)
        if data:
            self._take(data, events)

    def _take_whole_ones(self, data: bytes, events: list[ServerEvent]) -> bytes:
        """Append the complete events in ``data``, which has no CR; return the rest of the bytes."""
        if self._line or self._data or self._event:
            begun, blank, data = data.partition(b"\n\n")
            self._take(begun + blank, events)
        *blocks, rest = data.split(b"\n\n")
        for block in blocks:  # nearly all are of one line of data, or of its name before that
            first, _, second = block.partition(b"\n")
            if not second and first.startswith(b"data: "):
                self._check(len(first))
                events.append(_event(("", first[6:])))
            elif second.startswith(b"data: ") and first.startswith(b"event: ") and b"\n" not in second:
                self._check(max(len(first), len(second)))
                events.append(_event((first[7:].decode("utf-8", "replace"), second[6:])))
            else:
                self._take(block + b"\n\n", events)
        return rest

    def _take(self, data: bytes, events: list[ServerEvent]) -> None:
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()  # of bytes: at LF, CRLF and CR only
        rest = b"" if data.endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._end_line(line, events)
        if rest:
            self._check(self._data_bytes + self._line_bytes + len(rest))
            self._line.append(rest)
            self._line_bytes += len(rest)

    def finish(self) -> list[ServerEvent]:
        """Return the last event, if no blank line ended it."""
        events: list[ServerEvent] = []
        if self.error is None:
            if self._line:
                self._end_line(b"", events)
            self._end_line(b"", events)
        return events

    def _begin(self, data: bytes) -> bytes:
        """Strip byte order mark and blanks from the first bytes, which show the kind of the body."""
        if self._bom is not None:
            data = self._bom + data
            self._bom = data if len(data) < len(_BOM) and _BOM.startswith(data) else None
            if self._bom is not None:
                return b""
            data = data.removeprefix(_BOM)
        data = data.lstrip()
        self._begun = bool(data)
        if data.startswith((b"{", b"[", b"<")):
            self._document = bytearray()
        return data

    def _check(self, size: int) -> None:
        if size > self._max:
            raise BadReply(f"an event of the stream is longer than {self._max} bytes")

    def _end_line(self, line: bytes, events: list[ServerEvent]) -> None:
        if self._line:
            line = b"".join([*self._line, line])
            self._line.clear()
            self._line_bytes = 0
        if not line:
            if self._data:
                events.append(ServerEvent(self._event, b"\n".join(self._data)))
                self._data.clear()
                self._data_bytes = 0
            self._event = ""
            return
        self._check(self._data_bytes + len(line))
        name, _, value = line.partition(b":")
        if name in (b"data", b"error"):
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(value)
        if name == b"error":
            self._event = "error"
        elif name == b"event":
            self._event = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name not in _SILENT_FIELDS:
            self.stray = self.stray or line[:_MAX_STRAY]


def merged(body: Mapping[str, Any], *extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``body`` with ``extras``: objects are merged by key, all else is replaced; no argument is modified."""
    whole = dict(body)
    for extra in extras:
        for key, value in extra.items():
            known = whole.get(key)
            if isinstance(value, Mapping):
                known = known.values[0] if isinstance(known, EncodedJson) else known
                value = merged(known, value) if isinstance(known, Mapping) else value
            whole[key] = value
    return whole


def read_json(data: bytes, keep_halves: Callable[[Any], Any] | None = None) -> Any:
    """Return the value of a provider's JSON.

    Raw control characters in strings, which some services send, are accepted.  Halves of surrogate pairs become U+FFFD.

    Args:
        data: The JSON.
        keep_halves: Converts a value with such halves in its strings instead.

    Raises:
        ValueError: The data is not JSON.
    """
    if len(data) <= _FEW_BYTES:  # as most chunks; msgspec takes half the time, and any depth
        try:
            return _decode_json(data)
        except ValueError:  # NaN, halves, control characters
            pass
    try:
        return pydantic_core.from_json(data)
    except ValueError:
        try:
            value = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
            text = json.dumps(value, ensure_ascii=False)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        valid = mended(text)
        read = pydantic_core.from_json(valid)  # and no deeper than it takes
        return keep_halves(value) if keep_halves is not None and valid != text else read


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id of this response, for enquiries."""
    return next((headers[name][:200] for name in _REQUEST_ID if headers.get(name)), None)
