"""How does a conversation read on paper?"""

from __future__ import annotations

from collections.abc import Iterable

from fsm_agent.messages.message import Document, FunctionCall, FunctionResult, Image, Message, Text


def transcript(messages: Iterable[Message]) -> str:
    """Who said what, which functions were called, and what they returned: text for people.

    Each entry begins with its role in the first column, and all further lines are indented: no text and no name can
    pass for an entry of somebody else.  What a model thought is left out.
    """
    entries = list[str]()
    for message in messages:
        said = list[str]()
        for part in message.parts:
            match part:
                case Text():
                    said.append(part.text)
                case Image() | Document():
                    said.append(f"[{_shown(part)}]")
        if said:
            entries.append(_entry(message.role, "\n".join(said)))
        for part in message.parts:
            match part:
                case FunctionCall():
                    entries.append(_entry(f"{message.role} calls {part.name}", part.arguments_json))
                case FunctionResult():
                    beside = "".join([f"\n[{_shown(attachment)}]" for attachment in part.attachments])
                    verb = "fails" if part.is_error else "returns"
                    entries.append(_entry(f"{message.role} {part.name} {verb}", part.text + beside))
    return "\n".join(entries)


def _entry(who: str, said: str) -> str:
    return "\n  ".join([line.rstrip() for line in f"{who}: {said}".splitlines()]).rstrip()


def _shown(part: Image | Document) -> str:
    named = part.name if isinstance(part, Document) else None
    return " ".join([part.kind, *filter(None, [named or part.url])])
