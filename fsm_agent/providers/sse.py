"""Parses streamed replies: server-sent events, their JSON, and text that is split within a character.

JSON may escape a character beyond U+FFFF as a surrogate pair.  Servers that split text by UTF-16 units, as JavaScript
does, may send the two halves in separate events, although neither half is a character by itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self

import pydantic_core

from fsm_agent.errors import BadReply

MAX_EVENT_BYTES = 64 * 1024 * 1024  # the largest events hold a generated image
_SILENT_FIELDS = frozenset({b"", b"data", b"id", b"retry"})
_MAX_STRAY = 1000  # bytes
_BOM = b"\xef\xbb\xbf"
_REQUEST_ID = (
    *("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "x-ms-request-id", "x-goog-request-id"),
    *("x-generation-id", "cf-ray"),
)
_HALF = re.compile("[\ud800-\udfff]")
_LOST = "\ufffd"


class ServerEvent(NamedTuple):
    """One event of a stream."""

    event: str  # its name, or ""; "error" also if it has a field "error", which some servers send
    data: bytes


class EventStream:
    """Parses the bytes of a response into server-sent events.

    It follows the HTML standard (https://html.spec.whatwg.org/multipage/server-sent-events.html, read in November
    2026), with two differences: the last event needs no blank line after it, and a body whose beginning looks like JSON
    or HTML is not a stream and is kept in `document`.

    httpx-sse 0.4.3 is just as fast, but it reads only an `httpx.Response`, does not limit the size of events, and drops
    bodies that are not streams.

    Args:
        max_event_bytes: The maximum length of an event, in bytes.

    Attributes:
        error: Why the rest of the stream is ignored, or None.
        stray: The beginning of the first line that is not valid in a stream.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.error: BadReply | None = None
        self.stray = b""
        self._max = max_event_bytes
        self._document: bytearray | None = None
        self._begun = False
        self._bom: bytes | None = b""  # the first bytes, while they may be a byte order mark
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
        """Read the next bytes and return the events that they complete, up to the first `error`."""
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
        if data:
            self._take(data, events)

    def _take(self, data: bytes, events: list[ServerEvent]) -> None:
        self._after_cr = data.endswith(b"\r")
        lines = data.splitlines()  # bytes are split at LF, CRLF and CR only
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
        """Strip a byte order mark and blanks from the first bytes, and detect a body that is not a stream."""
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


def read_json(data: bytes, keep_halves: Callable[[Any], Any] | None = None) -> Any:
    """Return the value that a provider's JSON describes.

    Raw control characters in strings are accepted, because some services send them.  Halves of surrogate pairs become
    U+FFFD.

    Args:
        data: The JSON.
        keep_halves: A function that converts a value that contains halves of surrogate pairs.  By default, the halves
            are replaced.

    Raises:
        ValueError: If the data is not JSON.
    """
    try:
        return pydantic_core.from_json(data)
    except ValueError:
        try:
            value = json.loads(data.decode("utf-8-sig", "replace"), strict=False)
            text = json.dumps(value, ensure_ascii=False)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        valid = mended(text)
        read = pydantic_core.from_json(valid)  # also enforces the limit on depth
        return keep_halves(value) if keep_halves is not None and valid != text else read


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id for this response.  The provider's support team may ask for it."""
    return next((headers[name][:200] for name in _REQUEST_ID if headers.get(name)), None)


class CutText(str):
    """A string that begins or ends with half a surrogate pair.  Its value as a `str` has U+FFFD there.

    Attributes:
        halves: The string as received.
    """

    __slots__ = ("halves",)

    halves: str

    def __new__(cls, halves: str) -> Self:
        text = super().__new__(cls, mended(halves))
        text.halves = halves
        return text

    def __deepcopy__(self, memo: object) -> str:
        return str(self)


def mended(text: str) -> str:
    """Return ``text`` with surrogate pairs joined and each remaining half replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def with_halves(value: Any) -> Any:
    """Return a JSON value in which all strings are valid.

    Those that begin or end with half a pair become `CutText`.
    """
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [with_halves(item) for item in value]
    return {mended(key): with_halves(item) for key, item in value.items()} if isinstance(value, dict) else value


def joined(pieces: Iterable[str]) -> str:
    """Return the text, joined from its pieces."""
    return _text("".join([piece.halves if isinstance(piece, CutText) else piece for piece in pieces]))


def _text(text: str) -> str:
    if _HALF.search(text) is None:
        return text
    return CutText(text) if _HALF.match(text[0]) or _HALF.match(text[-1]) else mended(text)


class ArrivingText:
    """A text that is still arriving.

    Attributes:
        pieces: The text so far, without half a pair at its end.
        length: The number of its characters.
    """

    __slots__ = ("half", "length", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0
        self.half = ""

    def add(self, piece: str) -> str:
        """Add the next piece and return the text that it completes."""
        text = piece
        if type(piece) is not str or self.half:  # rare
            text = self.half + (piece.halves if isinstance(piece, CutText) else piece)
            self.half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
            text = mended(text.removesuffix(self.half))
        self.pieces.append(text)
        self.length += len(text)
        return text

    def end(self) -> str:
        """End the text and return the rest: U+FFFD if half a pair was left."""
        if not self.half:
            return ""
        self.half = ""
        return self.add(_LOST)

    def rest(self, whole: str) -> str:
        """Return the rest of ``whole``, which replaces half a pair, or "" if ``whole`` does not continue this text."""
        self.half = ""
        return whole[self.length :] if len(whole) > self.length and whole.startswith(str(self)) else ""

    def __bool__(self) -> bool:
        return bool(self.pieces or self.half)

    def __str__(self) -> str:
        return "".join(self.pieces)
