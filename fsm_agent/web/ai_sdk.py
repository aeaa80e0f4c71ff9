"""The UI message stream of Vercel's AI SDK (``ai`` 6), in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fsm_agent.messages.event_json import parsed
from fsm_agent.messages.events import FunctionEnded, Question
from fsm_agent.web.requests import (
    BadRequest,
    ClientRequest,
    approval_outcome,
    check_name,
    convert_body,
    read_arguments,
    read_image,
    user_message,
)
from fsm_agent.web.translate import (
    Data,
    ProtocolTranslator,
    arguments_of,
    as_json,
    function_id,
    masked_question,
    masked_result,
)

HEADERS = {"x-vercel-ai-ui-message-stream": "v1", "cache-control": "no-store", "x-accel-buffering": "no"}
END = "data: [DONE]\n\n"


class AiSdk(ProtocolTranslator):
    """Translates events into chunks of the AI SDK.

    Text and reasoning become ``text-*`` and ``reasoning-*`` chunks, and functions become dynamic ``tool-*`` chunks.
    Other events become data: ``data-progress``, ``data-output`` for typed output as it arrives, ``data-state`` for a
    flow's states, and ``data-inside`` for nested agents.  The client does not keep ``data-inside``.

    ``regenerate()`` retries a turn that failed; for a turn that has an answer, it returns that answer.

    A question becomes a ``tool-approval-request`` or ``data-question`` chunk.  A ``data-answer`` part answers either,
    and may contain edited ``arguments``.  After a reload, the client requests ``GET …/{id}/stream``, to which you
    respond with status 204 if the run has ended.

    Args:
        message: The reply's id.  It must differ from the id of the user's message.
        is_continued: Whether the client continues the message that asked; see `ClientRequest.is_continued`.

    Examples:
        >>> translator = AiSdk("m1-reply")
        >>> told = [data for event in Agent(Script("Hi.")).stream("Hello") for data in translator.take(event)]
        >>> [data["type"] for data in told][:3]
        ['start-step', 'text-start', 'text-delta']
    """

    def __init__(self, message: str, *, is_continued: bool = False) -> None:
        super().__init__(tells_again=not is_continued)
        self._message = message
        self._in_step = False

    @staticmethod
    def read(body: Any) -> ClientRequest:
        """Return the message or the answers in a client's request.

        A ``data-answer`` part in a user's message answers a question.  Its data contains the question's ``key`` and a
        ``value``.  For an approval, it contains ``approved`` instead of a value, and ``arguments`` if they were edited.

        Args:
            body: The body of the request, as JSON data.

        Raises:
            BadRequest: If the body is invalid.  The error says where.
        """
        found: _Body = convert_body(body, _Body)
        chat = check_name("id", found.id)
        if not found.messages:
            raise BadRequest("messages: expected one or more, got none", "no_message")
        last: _Message = convert_body(found.messages[-1], _Message)
        if last.role == "assistant":
            parts = [part for part in last.parts if part.state == "approval-responded"]
            answers = {str(p.approval.get("id")): _verdict(p.approval) for p in parts}
        else:
            answers = {str(p.data.get("key")): _answer(p.data) for p in last.parts if p.type == "data-answer"}
            if answers and any(p.type == "file" or p.text.strip() for p in last.parts):
                raise BadRequest(
                    "messages: expected only answers in the last one, got text or a file as well", "bad_answer"
                )
        if answers:
            return ClientRequest(chat, "", None, answers, last.role == "assistant")
        if last.role != "user":
            raise BadRequest(
                "messages: expected the last one to have the role 'user', or to answer an approval", "no_message"
            )
        texts = [_part(part) for part in last.parts if not part.type.startswith("data-")]
        name, is_again = check_name("id of the message", last.id), found.trigger == "regenerate-message"
        return ClientRequest(chat, name, user_message(texts), {}, is_again=is_again)

    def begin(self) -> list[Data]:
        return [{"type": "start", "messageId": self._message}]

    def failed(self, text: str, code: str = "") -> list[Data]:
        return [{"type": "error", "errorText": text}, *self._finish("error")]

    def _finish(self, reason: str) -> list[Data]:
        step: list[Data] = [{"type": "finish-step"}] if self._in_step else []
        self._in_step = False
        return [*step, {"type": "finish", "finishReason": reason}]

    def _ready(self) -> list[Data]:
        if self._in_step:
            return []
        self._in_step = True
        return [{"type": "start-step"}]

    def _requested(self, path: str) -> list[Data]:
        if path:
            return []
        ended: list[Data] = [{"type": "finish-step"}] if self._in_step else []
        self._in_step = False
        return [*ended, *self._ready()]

    def _began(self, path: str, kind: str, number: int) -> list[Data]:
        return [] if path else [*self._ready(), {"type": f"{kind}-start", "id": f"{kind}-{number}"}]

    def _piece(self, path: str, kind: str, number: int, text: str) -> list[Data]:
        if path:  # transient: pages may show it, and do not keep it
            inside = {"path": path, "name": self._name_of(path), "kind": kind, "text": text}
            return [{"type": "data-inside", "data": inside, "transient": True}]
        return [{"type": f"{kind}-delta", "id": f"{kind}-{number}", "delta": text}]

    def _finished(self, path: str, kind: str, number: int) -> list[Data]:
        return [] if path else [{"type": f"{kind}-end", "id": f"{kind}-{number}"}]

    def _called(self, path: str, id: str, name: str, arguments: str) -> list[Data]:
        about = {"toolCallId": id, "toolName": name, "dynamic": True}
        given = {"type": "tool-input-available", "input": arguments_of(arguments), **about}
        return [*self._ready(), {"type": "tool-input-start", **about}, given]

    def _returned(self, path: str, id: str, event: FunctionEnded) -> list[Data]:
        about, text = {"toolCallId": id, "dynamic": True}, masked_result(event)
        if event.is_error:
            return [{"type": "tool-output-error", "errorText": text, **about}]
        return [{"type": "tool-output-available", "output": as_json(text), **about}]

    def _denied(self, path: str, id: str, reason: str) -> list[Data]:
        return [{"type": "tool-output-denied", "toolCallId": id}]

    def _progressed(self, id: str, data: Any) -> list[Data]:
        return [{"type": "data-progress", "data": {"toolCallId": id, "data": data}, "transient": True}]

    def _output(self, data: Any) -> list[Data]:
        return [{"type": "data-output", "id": "output", "data": data}]

    def _stepped(self, state: str) -> list[Data]:
        return [{"type": "data-state", "id": "state", "data": {"state": state}}]

    def _waits(self, questions: Sequence[Question]) -> list[Data]:
        found: list[Data] = []
        for question in questions:
            if question.kind == "approval":
                ids = {"approvalId": question.key, "toolCallId": function_id(question.key)}
                found.append({"type": "tool-approval-request", **ids})
            else:
                about = {"key": question.key, "kind": question.kind, "schema": parsed(question.schema)}
                data = {**about, **masked_question(question)}
                found.append({"type": "data-question", "id": question.key, "data": data})
        return [*found, *self._finish("tool-calls")]

    def _done(self, output: Any) -> list[Data]:
        return self._finish("stop")

    def _cancelled(self) -> list[Data]:
        return [{"type": "abort", "reason": "cancelled"}]


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    url: str = ""
    state: str = ""
    approval: dict[str, Any] = {}
    data: Any = {}

    def __post_init__(self) -> None:
        if self.type == "data-answer" and not (isinstance(self.data, dict) and self.data.get("key")):
            raise ValueError("data of data-answer: expected an object with a 'key'")


class _Message(msgspec.Struct):
    role: str
    id: str = ""
    parts: list[_Part] = []


class _Body(msgspec.Struct):
    id: str
    trigger: str = ""
    messages: list[Any] = []  # only the last is read, since the store has the others


def _part(part: _Part) -> Any:
    if part.type == "text":
        return part.text
    if part.type == "file":
        return read_image(part.url)
    raise BadRequest(f"messages: expected text or an image, got a part of type {part.type!r:.40}", "bad_part")


def _verdict(approval: dict[str, Any]) -> Any:
    return approval_outcome(approval.get("approved") is True, approval.get("reason"))


def _answer(data: dict[str, Any]) -> Any:
    if isinstance(data.get("approved"), bool):
        return approval_outcome(data["approved"], data.get("reason"), read_arguments(data.get("arguments")))
    return data.get("value")
