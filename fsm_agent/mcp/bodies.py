"""HTTP bodies of MCP servers: bounded, and mended where the official client could not read them.

The official client bounds each event of a stream, but reads any other body to its end.  It refuses a message for one
wrong byte, and for half a character, which JavaScript writes as an escape where it cuts a text.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import AsyncIterator

import httpx2

MAX_BYTES = 32 * 1024 * 1024  # a picture is one body, or one event
_ESCAPES = re.compile(
    r"""(?P<pair>  \\u[dD][89abAB][0-9a-fA-F]{2} \\u[dD][c-fC-F][0-9a-fA-F]{2} )
      | (?P<begun> \\(?:u[0-9a-fA-F]{0,3})? \Z
                 | \\u[dD][89abAB][0-9a-fA-F]{2} (?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)? \Z )
      | (?P<half>  \\u[dD][89a-fA-F][0-9a-fA-F]{2} )
      | \\.""",
    re.VERBOSE | re.DOTALL,
)


class _Mended(httpx2.AsyncByteStream):
    """A stream of JSON, or of events of JSON, with U+FFFD for each wrong byte and each half of a surrogate pair."""

    def __init__(self, stream: httpx2.AsyncByteStream, max_bytes: float) -> None:
        self._stream = stream
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        size_bytes, begun = 0, ""
        async for chunk in self._stream:
            size_bytes += len(chunk)
            if size_bytes > self._max_bytes:
                raise httpx2.StreamError(f"the answer: expected at most {self._max_bytes} bytes, got more")
            text, begun = _mended(begun + decoder.decode(chunk))
            yield text.encode()
        text, begun = _mended(begun + decoder.decode(b"", final=True))
        yield (text + begun).encode()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _mended(text: str) -> tuple[str, str]:
    """Return JSON without halves of pairs, and the escape at its end of which more may follow."""
    begun = ""

    def mend(found: re.Match[str]) -> str:
        nonlocal begun
        begun = found["begun"] or ""
        return "" if begun else "\\ufffd" if found["half"] else found[0]

    return (_ESCAPES.sub(mend, text) if "\\" in text else text), begun


async def check_body(response: httpx2.Response) -> None:
    """Bound the body of a response, unless it is an event stream, and mend it.

    Raises:
        httpx2.DecodingError: The body is compressed, so its size is not the received size.
    """
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise httpx2.DecodingError(f"the answer: expected the encoding 'identity', got {encoding!r:.80}")
    is_events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Mended(response.stream, float("inf") if is_events else MAX_BYTES)
