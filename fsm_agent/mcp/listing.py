"""The tools that an MCP server lists, with bounded and plain texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from fsm_agent._internal.plain_text import plain

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

MAX_TOOLS = 2_000
MAX_PAGES = 200
MAX_NAME_CHARS = 1_000
MAX_DESCRIPTION_CHARS = 10_000  # of a tool or a part of its schema; a longer one is cut
MAX_CHARS = 2_000_000  # of all tools: names, descriptions, schemas
_TEXTS = ("description", "title")  # of a schema, for the model to read


class ListingTooLong(Exception):
    """A server lists too much; the message continues a sentence that begins with its name."""


async def all_tools(client: Client) -> tuple[Tool, ...]:
    """Request all pages of the tools, and return them with bounded and plain texts.

    Raises:
        ListingTooLong: There are too many tools, pages, or characters.
    """
    if client.server_capabilities.tools is None:
        return ()
    tools: list[Tool] = []
    size_chars = 0
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        if len(tools) + len(page.tools) > MAX_TOOLS:
            raise ListingTooLong(f"lists more than {MAX_TOOLS} tools")
        for tool in page.tools:
            tools.append(_bounded(tool))
            size_chars += _size_chars(tools[-1])
            if size_chars > MAX_CHARS:
                raise ListingTooLong(f"says more than {MAX_CHARS} characters of its tools, up to {tool.name!r:.100}")
        cursor = page.next_cursor
        if cursor is None:
            return tuple(tools)
    raise ListingTooLong(f"lists its tools in more than {MAX_PAGES} pages")


def _bounded(tool: Tool) -> Tool:
    if len(tool.name) > MAX_NAME_CHARS:
        raise ListingTooLong(f"has a tool whose name is longer than {MAX_NAME_CHARS} characters: {tool.name!r:.100}")
    description = _text(tool.description or tool.title or "")
    return tool.model_copy(update={"description": description, "input_schema": _schema(tool.input_schema)})


def _size_chars(tool: Tool) -> int:
    return len(tool.name) + len(tool.description or "") + len(to_json(tool.input_schema))


def _schema(value: Any) -> Any:
    """Return a schema with bounded and plain texts; names and values stay, because arguments have to match them."""
    match value:
        case Mapping():
            return {
                key: _text(inner) if key in _TEXTS and isinstance(inner, str) else _schema(inner)
                for key, inner in value.items()
            }
        case list():
            return [_schema(inner) for inner in value]
    return value


def _text(text: str) -> str:
    shown = plain(text[: 2 * MAX_DESCRIPTION_CHARS])
    is_whole = len(shown) <= MAX_DESCRIPTION_CHARS and len(text) <= 2 * MAX_DESCRIPTION_CHARS
    return shown if is_whole else f"{shown[: MAX_DESCRIPTION_CHARS - 1]}…"
