"""What of a request shall Anthropic keep for the next one?

It keeps what stands before a breakpoint, and looks for it at the breakpoints of later requests and up to 20 blocks
before them.  The newest message covers all, as long as nothing before it changes; the system prompt and the
functions are kept apart for other dialogs.
https://platform.claude.com/docs/en/build-with-claude/prompt-caching (November 2026)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent.providers.encoding import Written

MOST = 4  # breakpoints in one request; more are refused
_TAKEN_ON = frozenset({"text", "image", "document", "tool_use", "tool_result"})  # never on what was thought

Block = dict[str, Any]


def with_breakpoints(body: Mapping[str, Any], ttl: str, extra: Mapping[str, Any], *, there: int) -> dict[str, Any]:
    """The request with breakpoints at the end of its messages, its system prompt and its functions.

    Args:
        body: The request; it is not changed.
        ttl: How long to keep it: "5m", which is the default, or "1h".
        extra: What will be merged into it: what that replaces gets no breakpoint, and those in it are counted.
        there: How many breakpoints it has already; when none is left, the first of these three go before the others.
    """
    mark = {"type": "ephemeral", "ttl": ttl} if ttl != "5m" else {"type": "ephemeral"}
    marked = dict(body)
    there += _count(extra)
    for key, place in (("messages", _marked_turns), ("system", _marked_blocks), ("tools", _marked_tools)):
        if there < MOST and key in body and key not in extra and (now := place(body[key], mark)) is not None:
            marked[key] = now
            there += 1
    return marked


def _count(extra: Mapping[str, Any]) -> int:
    """How many breakpoints are in it: at its top, or on blocks of the three lists and on those in messages."""
    listed = [block for key in ("messages", "system", "tools") for block in _entries(extra.get(key))]
    blocks = [extra, *listed, *[block for entry in listed for block in _entries(entry.get("content"))]]
    return sum("cache_control" in block for block in blocks)


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list | tuple) else []


def _marked_turns(turns: Sequence[Block | Written], mark: Block) -> list[Block | Written] | None:
    for place in reversed(range(len(turns))):
        turn = turns[place]
        if isinstance(turn, Written):
            return _marked_turns([*turns[:place], *turn.values, *turns[place + 1 :]], mark)
        blocks = _blocks(turn["content"])
        if _last(blocks) is not None:
            if (content := _marked_blocks(blocks, mark)) is None:
                return None
            return [*turns[:place], {**turn, "content": content}, *turns[place + 1 :]]
    return None


def _marked_blocks(content: str | Sequence[Block], mark: Block) -> list[Block] | None:
    """The blocks with a breakpoint on the last that can have one; None when none can, or it has one already."""
    blocks = _blocks(content)
    last = _last(blocks)
    if last is None or "cache_control" in blocks[last]:
        return None
    return [*blocks[:last], {**blocks[last], "cache_control": mark}, *blocks[last + 1 :]]


def _marked_tools(tools: Sequence[Block | Written], mark: Block) -> list[Block | Written]:
    last = tools[-1].values[0] if isinstance(tools[-1], Written) else tools[-1]
    return [*tools[:-1], {**last, "cache_control": mark}]


def _blocks(content: str | Sequence[Block]) -> Sequence[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _last(blocks: Sequence[Block]) -> int | None:
    """Where the last block is that can have a breakpoint; texts need a visible character."""
    return next((place for place in reversed(range(len(blocks))) if _is_fit(blocks[place])), None)


def _is_fit(block: Block) -> bool:
    return block.get("type") in _TAKEN_ON and bool(str(block.get("text", "x")).strip())
