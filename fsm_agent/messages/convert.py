"""Makes messages from dictionaries in the format of OpenAI's chat completions.

The format is described at https://platform.openai.com/docs/api-reference/chat/create (as of November 2026).  Errors say
where a mistake is, such as ``messages[2].tool_calls[0]``.  Nothing is read from disk: an image is an http(s) URL or a
base64 data URL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, get_args

from fsm_agent._internal.text import plain
from fsm_agent.errors import UsageError, hint
from fsm_agent.messages.message import (
    ChatDict,
    Document,
    FunctionCall,
    FunctionResult,
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    check_messages,
)
from fsm_agent.validation import invalid, require, safe_repr

MAX_MESSAGES = 100_000
_MAX_WORD = 40  # characters; no similar word is suggested for a longer one
_ROLES: Mapping[str, Role] = {"developer": "system", **{role: role for role in get_args(Role)}}
_KEYS = {
    "system": ("role", "content"),
    "user": ("role", "content"),
    "assistant": ("role", "content", "tool_calls", "refusal", "reasoning_content"),
    "tool": ("role", "content", "tool_call_id", "name"),
}
_UNUSED = ("name", "annotations", "audio", "function_call", "tool_calls", "tool_call_id", "refusal")  # when empty
_RIGHT = "Message.of('user', '…') or {'role': 'user', 'content': '…'}"
_OF_FILES = "; for text with files, pass Payload.text('…').with_document(…)"


def messages_of(items: Iterable[Message | ChatDict], before: Sequence[Message] = ()) -> list[Message]:
    """Return the messages, with dictionaries converted.

    Args:
        items: The messages, from the oldest to the newest.
        before: The messages that precede ``items``.  Results at the beginning of ``items`` may answer calls in these
            messages.

    Raises:
        UsageError: If an item is not a message.  The error names its index and key.
    """
    is_right = isinstance(items, Iterable) and not isinstance(items, str | bytes | Mapping)
    require("messages", items, is_right, "a list of messages")
    messages = list(items)
    check_messages(messages)
    if all(isinstance(item, Message) for item in messages):
        return cast("list[Message]", messages)
    if len(messages) > MAX_MESSAGES:
        raise UsageError(f"the messages: expected at most {MAX_MESSAGES:,}, got {len(messages):,}")
    reader = _Reader(before)
    made = [reader.read(index, item) for index, item in enumerate(messages)]
    reader.check_end()
    return made


class _Reader:
    def __init__(self, before: Sequence[Message]) -> None:
        self._start = len(before)
        self._open: dict[str, FunctionCall] = {}  # calls without results, by the provider's id
        self._has_results = False  # True after the first result of a round
        for message in before[len(before) - _last_round(before) :]:
            self._follow(message)

    def read(self, index: int, item: Message | ChatDict) -> Message:
        if not isinstance(item, Message):
            if not isinstance(item, Mapping):
                raise UsageError(f"messages[{index}]: expected {_RIGHT}, got {safe_repr(item)}{_OF_FILES}")
            item = self._convert(f"messages[{index}]", item, self._start + index)
        self._follow(item)
        return item

    def check_end(self) -> None:
        """Check that no results are missing from the last round.  A list that ends with function calls is valid."""
        if self._open and self._has_results:
            id = next(iter(self._open))
            raise UsageError(f"the messages: expected a result of the call {id!r} at the end, got none")

    def _convert(self, where: str, item: ChatDict, index: int) -> Message:
        role = self._role(where, item)
        if self._open and role != "tool":
            id = next(iter(self._open))
            right = f"a message with 'role': 'tool' and 'tool_call_id': {id!r}"
            raise UsageError(f"{where}: expected {right}, got one of role {role!r}")
        _check_keys(where, item, role)
        if role == "tool":
            return Message(role=role, parts=(self._result(where, item),))
        parts = list(_parts(f"{where}.content", item.get("content"), role))
        if role == "assistant":
            parts = [*_content_parts(where, item), *parts, *_calls(where, item, index)]
        if not parts and item.get("content") != "":  # APIs send and accept an empty text
            raise invalid(f"{where}.content", item.get("content"), "a string or a list of parts")
        return Message(role=role, parts=tuple(parts))

    def _follow(self, message: Message) -> None:
        """Record a message's calls as open, or close the calls that the message answers."""
        self._has_results = message.role == "tool"
        if not self._has_results:
            self._open = {call.provider_id or call.id: call for call in message.function_calls}
        for part in message.parts if self._has_results else ():
            if isinstance(part, FunctionResult):
                self._open.pop(part.provider_id or part.id, None)

    def _role(self, where: str, item: ChatDict) -> Role:
        role = item.get("role")
        if role == "function":
            raise UsageError(f"{where}.role: expected 'tool' with a 'tool_call_id', got 'function'")
        if not isinstance(role, str) or role not in _ROLES:
            raise UsageError(f"{where}.role: unknown role {safe_repr(role)}{hint(str(role)[:_MAX_WORD], _ROLES)}")
        return _ROLES[role]

    def _result(self, where: str, item: ChatDict) -> FunctionResult:
        id = item.get("tool_call_id")
        if not isinstance(id, str) or id not in self._open:
            right = " or ".join(map(repr, list(self._open)[:5])) or "a result after the message that asks for it"
            raise invalid(f"{where}.tool_call_id", id, right)
        call = self._open[id]
        texts, attachments = list[str](), list[Image | Document]()
        for part in _parts(f"{where}.content", item.get("content"), "tool"):
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, Image | Document):
                attachments.append(part)
        return FunctionResult(
            id=call.id, name=call.name, text="".join(texts), provider_id=id, attachments=tuple(attachments)
        )


def _last_round(messages: Sequence[Message]) -> int:
    count = 0
    while count < len(messages) and messages[-1 - count].role == "tool":
        count += 1
    return min(count + 1, len(messages))


def _check_keys(where: str, item: ChatDict, role: Role) -> None:
    for key, value in item.items():
        if key in _KEYS[role] or (key in _UNUSED and (value is None or value == [])):
            continue
        if key == "name":
            raise UsageError(f"{where}.name: expected no name, got {safe_repr(value)}; put the name into the content")
        meant = hint(str(key)[:_MAX_WORD], _KEYS[role])
        raise UsageError(f"{where}: unknown key {safe_repr(key)} of a message of role {role!r}{meant}")


def _content_parts(where: str, item: ChatDict) -> Iterator[Part]:
    for key, make in (("reasoning_content", _reasoning), ("refusal", Text)):
        if (value := item.get(key)) is not None:
            require(f"{where}.{key}", value, isinstance(value, str), "a string")
            yield make(value)


def _reasoning(text: str) -> Reasoning:
    return Reasoning(text=text)


def _calls(where: str, item: ChatDict, index: int) -> Iterator[FunctionCall]:
    calls = item.get("tool_calls")
    if calls is None:
        return
    require(f"{where}.tool_calls", calls, isinstance(calls, list | tuple), "a list of calls")
    seen = set[str]()
    for number, call in enumerate(calls):
        path = f"{where}.tool_calls[{number}]"
        right = "{'id': 'call_1', 'type': 'function', 'function': {'name': …, 'arguments': '{…}'}}"
        require(path, call, isinstance(call, Mapping), right)
        kind, id, function = call.get("type", "function"), call.get("id"), call.get("function")
        require(f"{path}.type", kind, kind == "function", "'function'")
        is_new = isinstance(id, str) and bool(id) and id not in seen
        require(f"{path}.id", id, is_new, "a string that no other call has")
        require(f"{path}.function", function, isinstance(function, Mapping), "{'name': …, 'arguments': '{…}'}")
        name, arguments = function.get("name"), function.get("arguments", "{}")
        require(f"{path}.function.name", name, isinstance(name, str) and bool(name), "the name of a function")
        require(f"{path}.function.arguments", arguments, isinstance(arguments, str), "a string of JSON")
        seen.add(id)
        yield FunctionCall(name=name, arguments_json=arguments, id=f"{index}.{number}", provider_id=id)


def _parts(where: str, content: Any, role: Role) -> Iterator[Part]:
    if content is None and role == "assistant":
        return
    if isinstance(content, str):
        if content or role != "assistant":
            yield Text(content)
        return
    require(where, content, isinstance(content, list | tuple), "a string or a list of parts")
    for number, part in enumerate(content):
        path = f"{where}[{number}]"
        require(path, part, isinstance(part, Mapping), "a part such as {'type': 'text', 'text': '…'}")
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in _PARTS:
            right = ", ".join(map(repr, _PARTS))
            raise UsageError(f"{path}.type: expected one of {right}, got {safe_repr(kind)}")
        yield _PARTS[kind](path, part)


def _text(where: str, part: ChatDict) -> Part:
    key = "refusal" if part["type"] == "refusal" else "text"
    text = part.get(key)
    require(f"{where}.{key}", text, isinstance(text, str), "a string")
    return Text(str(text))


def _image(where: str, part: ChatDict) -> Part:
    image = part.get("image_url")
    path, url = f"{where}.image_url", image
    if isinstance(image, Mapping):
        path, url = f"{where}.image_url.url", image.get("url")
    require(path, url, _is_address(url), "an http(s) URL, or 'data:image/png;base64,…'")
    return _convert(path, lambda: Image.of(str(url)))


def _file(where: str, part: ChatDict) -> Part:
    file = part.get("file")
    require(f"{where}.file", file, isinstance(file, Mapping), "{'file_data': 'data:application/pdf;base64,…'}")
    data, name = (file or {}).get("file_data"), (file or {}).get("filename")
    require(f"{where}.file.file_data", data, _is_address(data), "'data:application/pdf;base64,…'")
    require(f"{where}.file.filename", name, name is None or isinstance(name, str), "a string")
    return _convert(f"{where}.file.file_data", lambda: Document.of(str(data), name=name))


def _is_address(value: object) -> bool:
    """Return whether a value is a URL.  A path is refused, because nothing is read from disk."""
    return isinstance(value, str) and value[:8].lower().startswith(("http://", "https://", "data:"))


def _convert(where: str, make: Callable[[], Part]) -> Part:
    try:
        return make()
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


_PARTS: Mapping[str, Callable[[str, ChatDict], Part]] = {
    "text": _text,
    "image_url": _image,
    "file": _file,
    "refusal": _text,
}

_SHOWN = 60  # characters of a message in an overview


def overview(messages: Iterable[Message]) -> str:
    """Return one line per message, with its number, role and the beginning of its content.

    A model's reasoning is left out.
    """
    lines = list[str]()
    for number, message in enumerate(messages):
        held = list[str]()
        for part, what, text in _said(message):
            told = f"{what}({text})" if isinstance(part, FunctionCall) else f"{what}: {text}"
            held.append(told if what else text)
        text = " ".join(plain(" ".join([piece[: 4 * _SHOWN] for piece in held])).split())
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        lines.append(f"{number:>3} {message.role:<9} {text}".rstrip())
    return "\n".join(lines)


def transcript(messages: Iterable[Message]) -> str:
    """Return a transcript with each role's texts, the function calls, and their results.

    Each entry begins with its role in the first column.  Its other lines are indented, so that no text or name can
    imitate another entry.  A model's reasoning is left out.
    """
    entries = list[str]()
    for message in messages:
        said = list(_said(message))
        if texts := [text for _, what, text in said if not what]:
            entries.append(_entry(message.role, "\n".join(texts)))
        entries += [_entry(f"{message.role} {what}", text) for _, what, text in said if what]
    return "\n".join(entries)


def _said(message: Message) -> Iterator[tuple[Part, str, str]]:
    """Yield `(part, action, text)` for each part to show; ``action`` is "" for texts and files."""
    for part in message.parts:
        match part:
            case Text():
                yield part, "", part.text
            case Image() | Document():
                yield part, "", f"[{_label(part)}]"
            case FunctionCall():
                yield part, f"calls {part.name}", part.arguments_json
            case FunctionResult():
                files = [f"[{_label(attachment)}]" for attachment in part.attachments]
                yield part, f"{part.name} {'fails' if part.is_error else 'returns'}", "\n".join([part.text, *files])


def _entry(who: str, text: str) -> str:
    return "\n  ".join([line.rstrip() for line in f"{who}: {text}".splitlines()]).rstrip()


def _label(part: Image | Document) -> str:
    named = part.name if isinstance(part, Document) else None
    return " ".join([part.kind, *filter(None, [named or part.url])])
