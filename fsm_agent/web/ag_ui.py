"""The AG-UI protocol 1.0, in both directions: https://docs.ag-ui.com (August 2026)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import msgspec

from fsm_agent.call.outcomes import Denied, Returned
from fsm_agent.call.question_forms import about_of
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
from fsm_agent.web.translate import TEXT, Data, ProtocolTranslator, function_id, masked_question, masked_result

HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
_KINDS = {"text": "TEXT_MESSAGE", "reasoning": "REASONING_MESSAGE"}


class AgUi(ProtocolTranslator):
    """Translates events into AG-UI.

    Text and reasoning become ``TEXT_MESSAGE_*`` and ``REASONING_*`` events, and nested agents become ``SUBAGENT_*``
    events.  Functions become ``TOOL_CALL_*`` events, and their progress becomes ``CUSTOM`` events named ``progress``.
    Typed output becomes ``STATE_SNAPSHOT`` events as it arrives, and each state of a flow becomes a pair of ``STEP_*``
    events.

    Questions become interrupts in ``RUN_FINISHED``.  The client answers with ``resume`` and edits arguments with
    ``editedArgs``.  A function that has no callable and is among the client's ``tools`` does not become an interrupt;
    the client runs it and sends its result as a message with the role ``tool``.  After a reload, the client posts
    nothing, and follows the newest run from its beginning.

    Args:
        thread: The client's name for the conversation.
        run: The client's name for this request.
        tools: The names of the functions that the client runs; see `ClientRequest`.

    Examples:
        >>> translator = AgUi("t1", "r1")
        >>> told = [data for event in Agent(Script("Hi.")).stream("Hello") for data in translator.take(event)]
        >>> [data["type"] for data in told]
        ['TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_END', 'RUN_FINISHED']
    """

    def __init__(self, thread: str, run: str, tools: Collection[str] = ()) -> None:
        super().__init__()
        self._tools = tools
        self._ids = {"threadId": thread, "runId": run}
        self._at = ""  # the state of a flow

    @staticmethod
    def read(body: Any) -> ClientRequest:
        """Return the message or the answers in a client's request.

        Args:
            body: The body of the request, as JSON data.

        Raises:
            BadRequest: If the body is invalid.  The error says where.
        """
        found: _Body = convert_body(body, _Body)
        thread, run = check_name("threadId", found.threadId), check_name("runId", found.runId)
        tools = tuple([check_name("tools", tool.name) for tool in found.tools or ()])
        if found.resume:
            answers = {entry.interruptId: _answer(entry) for entry in found.resume}
            sent = {entry.interruptId: entry.payload for entry in found.resume if entry.status != "cancelled"}
            if len(answers) < len(found.resume):
                raise BadRequest("resume: expected each interruptId once, got one twice", "bad_answer")
            return ClientRequest(thread, run, None, answers, payloads=sent, tools=tools)
        if results := _results(found.messages):
            return ClientRequest(thread, run, None, {}, results=results, tools=tools)
        last: _Message | None = convert_body(found.messages[-1], _Message) if found.messages else None
        if last is None or last.role != "user":
            raise BadRequest("messages: expected the last one to have the role 'user'", "no_message")
        content = last.content or ""
        parts = [content] if isinstance(content, str) else [_part(part) for part in content]
        return ClientRequest(thread, run, user_message(parts), {}, tools=tools)

    def begin(self) -> list[Data]:
        return [{"type": "RUN_STARTED", **self._ids, "protocolVersion": "1.0"}]

    def failed(self, text: str, code: str = "") -> list[Data]:
        return [*self._step_ended(), {"type": "RUN_ERROR", "message": text, **({"code": code} if code else {})}]

    def _id(self, path: str, number: int) -> str:
        return f"{self._ids['runId']}:{path}:{number}"

    def _of(self, path: str) -> Data:
        return {"subagentRunId": self._sub(path)} if path else {}

    def _sub(self, path: str) -> str:
        return f"{self._ids['runId']}:{path}"

    def _entered(self, path: str) -> list[Data]:
        outer, _, own = path.rpartition("/")
        data = {"type": "SUBAGENT_STARTED", "subagentRunId": self._sub(path), "name": self._name_of(path)}
        if outer:
            data["parentSubagentRunId"] = self._sub(outer)
        if own.startswith("run:"):
            data["parentToolCallId"] = function_id(path)
        return [data]

    def _left(self, path: str, questions: Sequence[Question]) -> list[Data]:
        keys = [question.key for question in questions if question.key.startswith(f"{path}/")]
        outcome = {"type": "suspended", "interruptIds": keys} if questions else {"type": "success"}
        return [{"type": "SUBAGENT_FINISHED", "subagentRunId": self._sub(path), "outcome": outcome}]

    def _began(self, path: str, kind: str, number: int) -> list[Data]:
        about = {"messageId": self._id(path, number), **self._of(path)}
        if kind == TEXT:
            return [{"type": "TEXT_MESSAGE_START", "role": "assistant", **about}]
        start = {"type": "REASONING_MESSAGE_START", "role": "reasoning", **about}
        return [{"type": "REASONING_START", **about}, start]

    def _piece(self, path: str, kind: str, number: int, text: str) -> list[Data]:
        about = {"messageId": self._id(path, number), **self._of(path)}
        return [{"type": f"{_KINDS[kind]}_CONTENT", "delta": text, **about}]

    def _finished(self, path: str, kind: str, number: int) -> list[Data]:
        about = {"messageId": self._id(path, number), **self._of(path)}
        ends = ["TEXT_MESSAGE_END"] if kind == TEXT else ["REASONING_MESSAGE_END", "REASONING_END"]
        return [{"type": end, **about} for end in ends]

    def _called(self, path: str, id: str, name: str, arguments: str) -> list[Data]:
        about = {"toolCallId": id, **self._of(path)}
        start = {"type": "TOOL_CALL_START", "toolCallName": name, **about}
        given = {"type": "TOOL_CALL_ARGS", "delta": arguments or "{}", **about}
        return [start, given, {"type": "TOOL_CALL_END", **about}]

    def _returned(self, path: str, id: str, event: FunctionEnded) -> list[Data]:
        facts = {"outcome": "failed" if event.is_error else "done", "duration_s": round(event.duration_s, 3)}
        return [self._result(path, id, masked_result(event), facts)]

    def _denied(self, path: str, id: str, reason: str) -> list[Data]:
        return [self._result(path, id, f"denied: {reason}".rstrip(": "), {"outcome": "denied"})]

    def _result(self, path: str, id: str, text: str, facts: Data) -> Data:
        """Return a function's result.  ``rawEvent`` holds what the protocol cannot express."""
        about = {"messageId": f"{self._id(path, 0)}:{id}", "toolCallId": id, **self._of(path)}
        return {"type": "TOOL_CALL_RESULT", "content": text, "role": "tool", **about, "rawEvent": facts}

    def _progressed(self, id: str, data: Any) -> list[Data]:
        return [{"type": "CUSTOM", "name": "progress", "value": {"toolCallId": id, "data": data}}]

    def _output(self, data: Any) -> list[Data]:
        return [{"type": "STATE_SNAPSHOT", "snapshot": data}]

    def _stepped(self, state: str) -> list[Data]:
        ended, self._at = self._step_ended(), state
        return [*ended, {"type": "STEP_STARTED", "stepName": state}]

    def _step_ended(self) -> list[Data]:
        at, self._at = self._at, ""
        return [{"type": "STEP_FINISHED", "stepName": at}] if at else []

    def _waits(self, questions: Sequence[Question]) -> list[Data]:
        functions = [_function_of(question) if question.kind == "result" else None for question in questions]
        if functions and set(functions) <= set(self._tools):
            outcome: Data = {"type": "success"}  # after an interrupt, a client can only resume
        else:
            outcome = {"type": "interrupt", "interrupts": [_interrupt(question) for question in questions]}
        return [*self._step_ended(), {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}]

    def _done(self, output: Any) -> list[Data]:
        end = {"type": "RUN_FINISHED", **self._ids, "result": output, "outcome": {"type": "success"}}
        return [*self._step_ended(), end]

    def _cancelled(self) -> list[Data]:
        return [*self._step_ended(), {"type": "RUN_FINISHED", **self._ids, "outcome": {"type": "cancelled"}}]


def _interrupt(question: Question) -> Data:
    shown = masked_question(question)
    found: Data = {"id": question.key, "reason": question.kind, "metadata": shown}
    schema = parsed(question.schema)
    if question.kind != "approval":
        return {**found, **({"responseSchema": schema} if isinstance(schema, dict) else {})}
    arguments = schema if isinstance(schema, dict) else {"type": "object"}
    answer = {"approved": {"type": "boolean"}, "editedArgs": arguments, "reason": {"type": "string"}}
    needed: Data = {"type": "object", "properties": answer, "required": ["approved"]}
    return {
        **found,
        "message": _function_of(question),
        "toolCallId": function_id(question.key),
        "responseSchema": needed,
    }


def _function_of(question: Question) -> str:
    return str(about_of(question).get("function", ""))


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    source: dict[str, Any] = {}
    mimeType: str = ""  # noqa: N815
    data: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = ""
    toolCallId: str = ""  # noqa: N815
    error: str | None = None


class _Tool(msgspec.Struct):
    name: str


class _Entry(msgspec.Struct):
    interruptId: str  # noqa: N815
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class _Body(msgspec.Struct):
    threadId: str  # noqa: N815
    runId: str  # noqa: N815
    messages: list[Any] = []  # only the last is read, since the store has the others
    resume: list[_Entry] | None = None
    tools: list[_Tool] | None = None


def _results(messages: Sequence[Any]) -> dict[str, Returned]:
    """Return the results at the end of the messages, by the key of the question that each answers."""
    results: dict[str, Returned] = {}
    for message in reversed(messages):
        if not (isinstance(message, dict) and message.get("role") == "tool" and message.get("toolCallId")):
            break
        found: _Message = convert_body(message, _Message)
        path, slash, id = found.toolCallId.rpartition("/")
        content = found.content or ""
        text = content if isinstance(content, str) else "".join([part.text for part in content])
        results[f"{path}{slash}run:{id}"] = Returned(text=found.error or text, is_error=found.error is not None)
    return results


def _part(part: _Part) -> Any:
    if part.type == "text":
        return part.text
    if part.type == "image" and part.source.get("type") == "data":
        return read_image(f"data:{part.source.get('mimeType', '')};base64,{part.source.get('value', '')}")
    if part.type == "binary" and part.data:  # before AG-UI 1.0
        return read_image(f"data:{part.mimeType};base64,{part.data}")
    raise BadRequest(f"messages: expected text or an image as data, got a part of type {part.type!r:.40}", "bad_part")


def _answer(entry: _Entry) -> Any:
    if entry.status == "cancelled":
        return Denied("cancelled")
    payload = entry.payload
    if isinstance(payload, dict) and isinstance(payload.get("approved"), bool):
        return approval_outcome(payload["approved"], payload.get("reason"), read_arguments(payload.get("editedArgs")))
    return payload
