"""Dialogs with rounds of function calls, and a plain check that no round is torn."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from fsm_agent.messages import FunctionCall, FunctionResult, Image, Message

SYSTEM = Message.of("system", "Be terse.")
TASK = Message.of("user", "Find out.")
PICTURE = Image(url="https://example.org/a.png")


def asks(*ids: str, name: str = "search") -> Message:
    return Message.of("assistant", *[FunctionCall(name=name, arguments_json="{}", id=id) for id in ids])


def told(id: str, text: str = "found", *, name: str = "search", is_error: bool = False, images: int = 0) -> Message:
    attachments = (PICTURE,) * images
    result = FunctionResult(id=id, name=name, text=text, is_error=is_error, attachments=attachments)
    return Message.of("tool", result)


def rounds(*texts: str, first: int = 1) -> list[Message]:
    """One round with one call for each text: ids "1.0", "2.0", …"""
    return [m for n, text in enumerate(texts, first) for m in (asks(f"{n}.0"), told(f"{n}.0", text))]


def torn(messages: Sequence[Message]) -> str:
    """What of invariant (a) does not hold: each call is followed by exactly one result before any other role."""
    waiting: list[str] = []
    for place, message in enumerate(messages):
        got = [part.id for part in message.parts if isinstance(part, FunctionResult)]
        if message.role == "tool":
            for id in got:
                if id not in waiting:
                    return f"{id} at {place} was not asked for, or was answered before"
                waiting.remove(id)
            continue
        if waiting or got:
            return f"at {place}: {waiting} have no result, {got} is in no message of a function"
        waiting = [call.id for call in message.function_calls]
    return f"at the end: {waiting} have no result" if waiting else ""


@st.composite
def dialogs(draw: st.DrawFn) -> list[Message]:
    """Dialogs as agent calls leave them: system prompts or none, tasks, rounds of several calls, answers, warnings."""
    messages = [SYSTEM] * draw(st.integers(0, 2))
    for place in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["user", "assistant", "system", "round", "round", "round"]))
        if kind == "round":
            ids = [f"{place}.{index}" for index in range(draw(st.integers(1, 4)))]
            messages.append(asks(*ids))
            for id in ids:
                size, is_error = draw(st.integers(0, 60)), draw(st.booleans())
                messages.append(told(id, "x" * size, is_error=is_error, images=draw(st.integers(0, 1))))
        else:
            messages.append(Message.of(kind, f"{kind} {place}"))  # type: ignore[arg-type]
    return messages
