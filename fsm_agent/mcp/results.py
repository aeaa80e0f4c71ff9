"""Results of MCP tools as values that a model can take.

Content blocks: https://modelcontextprotocol.io/specification/2026-07-28/server/tools (read 2026-11-22).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from operator import contains
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from pydantic_core import from_json, to_json

from fsm_agent.errors import UsageError
from fsm_agent.messages.message import Document, Image

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock, ResourceLink

Piece: TypeAlias = str | Image | Document

_TEXTUAL = ("application/json", "application/xml", "application/yaml", "image/svg+xml")


def result_value(result: CallToolResult) -> str | list[Piece]:
    """Return a tool's result as a function would: its text, or texts and attachments in the server's order.

    Structured content is appended as JSON, unless the texts contain it already.
    """
    pieces = [_piece(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not _contain([piece for piece in pieces if isinstance(piece, str)], structured):
        pieces.append(to_json(structured).decode())
    joined = list(_joined(pieces))
    if not joined:
        return ""
    return joined[0] if len(joined) == 1 and isinstance(joined[0], str) else joined


def error_text(result: CallToolResult) -> str:
    """Return the text of a tool's error; "" if it has none."""
    value = result_value(result)
    return value if isinstance(value, str) else "\n".join([piece for piece in value if isinstance(piece, str)])


def _joined(pieces: Sequence[Piece]) -> Iterator[Piece]:
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if texts:
            yield "\n".join(texts)
            texts = []
        yield piece
    if texts:
        yield "\n".join(texts)


def _contain(texts: list[str], structured: Any) -> bool:
    """Return True if the texts have the structured content already, which may be wrapped as ``{"result": …}``."""
    values = [structured]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        values.append(structured["result"])
    read = [(text, _read_json(text)) for text in texts]
    for value in values:
        if any(value in (text, parsed) for text, parsed in read):
            return True
        if value and isinstance(value, list) and len(value) == len(read) and all(map(contains, read, value)):
            return True
    return False


def _read_json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return text


def _piece(block: ContentBlock) -> Piece:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return _blob(block.data, block.mime_type, "")
        case "resource_link":
            return _link(block)
        case "resource":
            resource = block.resource
            if (text := getattr(resource, "text", None)) is not None:
                return str(text)
            return _blob(resource.blob, resource.mime_type or "", resource.uri)  # type: ignore[union-attr]


def _link(link: ResourceLink) -> str:
    facts = ", ".join(filter(None, [link.mime_type, link.description]))
    return f"{link.title or link.name}: {link.uri}" + (f" ({facts})" if facts else "")


def _blob(data: str, media_type: str, uri: str) -> Piece:
    """Return bytes in a form that a model can take: an image, a PDF or text; otherwise a note about them."""
    media_type = media_type.partition(";")[0].strip().lower()
    about = f"{media_type or 'unknown type'}{', ' + uri if uri else ''}"
    try:
        content = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return f"[{about}: not valid base64]"
    if media_type == "application/pdf":
        name = unquote(uri.partition("?")[0].rpartition("/")[2])
        return Document(data=content, media_type=media_type, name=name or None)
    try:
        if media_type.startswith("text/") or media_type in _TEXTUAL:
            return content.decode()
        return Image.of(content)
    except (UsageError, UnicodeDecodeError):
        return f"[{about}, {len(content)} bytes: not shown]"
