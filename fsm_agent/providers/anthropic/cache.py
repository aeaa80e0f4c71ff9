"""Breakpoints of Anthropic's prompt cache.

The service caches the prefix up to a breakpoint, and looks it up at the breakpoints of later requests and up to 20
blocks before them.  The newest message covers everything, as long as nothing before it changes; the system prompt and
the functions have breakpoints of their own for other dialogs.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching (November 2026)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent.providers.encoding import EncodedJson

MOST = 4  # breakpoints in one request; more are refused
_TAKEN_ON = frozenset({"text", "image", "document", "tool_use", "tool_result"})  # never on reasoning

Block = dict[str, Any]


def with_breakpoints(body: Mapping[str, Any], ttl: str, extra: Mapping[str, Any], *, there: int) -> dict[str, Any]:
    """Return the request with breakpoints at the end of its messages, its system prompt and its functions.

    Args:
        body: The request; it is not modified.
        ttl: Lifetime of the cache: "5m", which is the default, or "1h".
        extra: Fields to be merged into it: a field that they replace gets no breakpoint, and theirs are counted.
        there: Number of breakpoints that it has already; when few are left, they go to the first of the three.
    """
    mark = {"type": "ephemeral", "ttl": ttl} if ttl != "5m" else {"type": "ephemeral"}
    marked = dict(body)
    there += _count(extra)
    for key, mark_last in (("messages", _marked_turns), ("system", _marked_blocks), ("tools", _marked_tools)):
        if there < MOST and key in body and key not in extra and (now := mark_last(body[key], mark)) is not None:
            marked[key] = now
            there += 1
    return marked


def _count(extra: Mapping[str, Any]) -> int:
    """Return the number of breakpoints in it: at its top, on blocks of the three lists, and on those in messages."""
    listed = [block for key in ("messages", "system", "tools") for block in _entries(extra.get(key))]
    blocks = [extra, *listed, *[block for entry in listed for block in _entries(entry.get("content"))]]
    return sum("cache_control" in block for block in blocks)


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list | tuple) else []


def _marked_turns(turns: Sequence[Block | EncodedJson], mark: Block) -> list[Block | EncodedJson] | None:
    for index in reversed(range(len(turns))):
        turn = turns[index]
        if isinstance(turn, EncodedJson):
            return _marked_turns([*turns[:index], *turn.values, *turns[index + 1 :]], mark)
        blocks = _blocks(turn["content"])
        if _last(blocks) is not None:
            if (content := _marked_blocks(blocks, mark)) is None:
                return None
            return [*turns[:index], {**turn, "content": content}, *turns[index + 1 :]]
    return None


def _marked_blocks(content: str | Sequence[Block], mark: Block) -> list[Block] | None:
    """Return the blocks with a breakpoint on the last that can have one; None if none can, or it has one already."""
    blocks = _blocks(content)
    last = _last(blocks)
    if last is None or "cache_control" in blocks[last]:
        return None
    return [*blocks[:last], {**blocks[last], "cache_control": mark}, *blocks[last + 1 :]]


def _marked_tools(tools: Sequence[Block | EncodedJson], mark: Block) -> list[Block | EncodedJson]:
    last = tools[-1].values[0] if isinstance(tools[-1], EncodedJson) else tools[-1]
    return [*tools[:-1], {**last, "cache_control": mark}]


def _blocks(content: str | Sequence[Block]) -> Sequence[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _last(blocks: Sequence[Block]) -> int | None:
    """Return the index of the last block that can have a breakpoint; texts need a visible character."""
    return next((index for index in reversed(range(len(blocks))) if _is_fit(blocks[index])), None)


def _is_fit(block: Block) -> bool:
    return block.get("type") in _TAKEN_ON and bool(str(block.get("text", "x")).strip())
