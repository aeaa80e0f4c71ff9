"""Sources of images and documents: paths, bytes, addresses and data URLs."""

from __future__ import annotations

import base64
import pathlib

from fsm_agent.errors import UsageError

MAX_FILE_BYTES = 100_000_000  # more than a request to any provider may hold (November 2026)
MAX_SHOWN_CHARS = 200  # of a path


def is_url(source: object) -> bool:
    """Return True for an http(s) URL."""
    return isinstance(source, str) and source[:8].lower().startswith(("http://", "https://"))


def is_data_url(source: object) -> bool:
    """Return True for a data URL."""
    return isinstance(source, str) and source[:5].lower() == "data:"


def bytes_of(source: str | bytes | pathlib.Path, what: str) -> bytes:
    """Return the bytes of a file, in a data URL, or passed as such.

    Args:
        source: The path, the data URL, or the bytes.
        what: The word for them, in messages.

    Raises:
        UsageError: The source is none of these, or not a regular file of at most `MAX_FILE_BYTES`.
    """
    if isinstance(source, bytes | bytearray):
        return bytes(source)
    if isinstance(source, str) and is_data_url(source):
        head, _, body = source.partition(",")
        if not head.endswith(";base64"):
            raise UsageError(f"the data URL: expected base64, as in 'data:image/png;base64,…', got {head[:60]!r}…")
        try:
            return base64.b64decode(body, validate=True)
        except ValueError as error:
            raise UsageError(f"the data URL {head[:60]!r}…: expected valid base64: {error}") from error
    try:
        return _read_file(pathlib.Path(source))
    except (OSError, TypeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise UsageError(f"no {what} can be read from {shown_source(source)}: {problem}") from error


def _read_file(path: pathlib.Path) -> bytes:
    if path.exists() and not (path.is_file() or path.is_dir()):  # a device or a pipe, which may never end
        raise ValueError("expected a regular file, got a device or a pipe")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"expected at most {MAX_FILE_BYTES} bytes, got more")
    return data


def shown_source(source: object) -> str:
    """Return a source as a message may show it."""
    return repr(source)[:MAX_SHOWN_CHARS]


def described(source: object, data: bytes) -> str:
    """Return a description of unexpected bytes: their number, their beginning, and their file."""
    is_file = not isinstance(source, bytes | bytearray) and not is_data_url(source)
    return f"{len(data)} bytes ({data[:8]!r}…){f' of {shown_source(source)}' if is_file else ''}"


def url_suffix(url: str) -> str:
    """Return the suffix of the name that a URL ends with, in lower case: '.pdf', or '' when there is none."""
    path = url.partition("://")[2].partition("#")[0].partition("?")[0].partition("/")[2]
    return pathlib.PurePath(path).suffix.lower()
