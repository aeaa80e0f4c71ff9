"""Transcripts and overviews: a conversation as text for people."""

from __future__ import annotations

from collections.abc import Iterable

from fsm_agent._internal.plain_text import plain
from fsm_agent.messages.message import Document, FunctionCall, FunctionResult, Image, Message, Text

_SHOWN = 60  # characters of a message in an overview


def overview(messages: Iterable[Message]) -> str:
    """Return a line for each message: its number, its role, and the beginning of what it holds.

    A model's reasoning is left out.
    """
    lines = list[str]()
    for number, message in enumerate(messages):
        held = list[str]()
        for part in message.parts:
            match part:
                case Text():
                    held.append(part.text)
                case Image() | Document():
                    held.append(f"[{_label(part)}]")
                case FunctionCall():
                    held.append(f"calls {part.name}({part.arguments_json})")
                case FunctionResult():
                    held.append(f"{part.name} {'fails' if part.is_error else 'returns'}: {part.text}")
        text = " ".join(plain(" ".join([piece[: 4 * _SHOWN] for piece in held])).split())
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        lines.append(f"{number:>3} {message.role:<9} {text}".rstrip())
    return "\n".join(lines)


def transcript(messages: Iterable[Message]) -> str:
    """Return a transcript: the texts by role, the functions that were called, and their results.

    Each entry begins with its role in the first column, and its further lines are indented: no text or name can imitate
    another entry.  A model's reasoning is left out.
    """
    entries = list[str]()
    for message in messages:
        lines = list[str]()
        for part in message.parts:
            match part:
                case Text():
                    lines.append(part.text)
                case Image() | Document():
                    lines.append(f"[{_label(part)}]")
        if lines:
            entries.append(_entry(message.role, "\n".join(lines)))
        for part in message.parts:
            match part:
                case FunctionCall():
                    entries.append(_entry(f"{message.role} calls {part.name}", part.arguments_json))
                case FunctionResult():
                    beside = "".join([f"\n[{_label(attachment)}]" for attachment in part.attachments])
                    verb = "fails" if part.is_error else "returns"
                    entries.append(_entry(f"{message.role} {part.name} {verb}", part.text + beside))
    return "\n".join(entries)


def _entry(who: str, text: str) -> str:
    return "\n  ".join([line.rstrip() for line in f"{who}: {text}".splitlines()]).rstrip()


def _label(part: Image | Document) -> str:
    named = part.name if isinstance(part, Document) else None
    return " ".join([part.kind, *filter(None, [named or part.url])])
