"""What do OpenAI's two wires say and read in the same way?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from fsm_agent.effects import Request
from fsm_agent.errors import UsageError
from fsm_agent.functions import Function
from fsm_agent.messages import FunctionCall, FunctionResult, Message, Text
from fsm_agent.providers.wire import Profile
from fsm_agent.replies import TokenLogprob

MAX_LOGPROB = 1e300  # beyond it an integer may be no float


def call_id(part: FunctionCall | FunctionResult) -> str:
    """What a call and its result have in common on the wire."""
    return part.provider_id or f"call_{part.id.replace('.', '_')}"


def arguments_object(text: str) -> str:
    """Arguments as a JSON object: services parse them, and refuse the whole dialog if they cannot."""
    try:
        arguments = from_json(text or "{}")
    except ValueError:
        arguments = None
    return (text or "{}") if isinstance(arguments, dict) else to_json({"invalid_arguments": text}).decode()


def offered_functions(request: Request, profile: Profile) -> tuple[tuple[Function, ...], str]:
    """The functions to offer, and the choice among them: 'auto', 'required', 'none' or a name.

    Raises:
        UsageError: The name is of no function of the request.
    """
    functions, choice = request.functions, request.tool_choice
    if choice in ("auto", "required", "none"):
        return functions, choice
    chosen = tuple([function for function in functions if function.name == choice])
    if not chosen:
        known = ", ".join([repr(function.name) for function in functions])
        raise UsageError(f"tool_choice is {choice!r}: 'auto', 'required', 'none' or one of {known} would be right")
    return (functions, choice) if profile.named_tool_choice else (chosen, "required")


def told(messages: Sequence[Message], words: str) -> list[Message]:
    """The messages with these words at the end of the system message, or as one."""
    if not messages or messages[0].role != "system":
        return [Message.of("system", words), *messages]
    first = messages[0]
    gap = "\n\n" if first.parts and first.parts != (Text(""),) else ""
    return [Message(role="system", parts=(*first.parts, Text(gap + words))), *messages[1:]]


def text_or_none(value: Any) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def first_count(*values: Any) -> int | None:
    """The first that is a count."""
    return next((value for value in values if type(value) is int and value >= 0), None)


def token_logprobs(entries: Any) -> Iterator[TokenLogprob]:
    """The tokens of a list of log probabilities; what is no such thing is passed over."""
    for entry in entries if isinstance(entries, list) else ():
        if (likely := _token(entry)) is None:
            continue
        top = entry.get("top_logprobs")
        others = [_token(other) for other in top] if isinstance(top, list) else ()
        yield TokenLogprob(*likely, tuple([other for other in others if other is not None]))


def _token(entry: Any) -> tuple[str, float] | None:
    if not isinstance(entry, dict):
        return None
    token, logprob = entry.get("token"), entry.get("logprob")
    if not isinstance(token, str) or not isinstance(logprob, int | float) or abs(logprob) > MAX_LOGPROB:
        return None
    return token, float(logprob)
