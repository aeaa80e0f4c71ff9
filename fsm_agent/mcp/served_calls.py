"""Tool calls from MCP clients.  Each becomes an agent call whose model calls only the tool's function.

The call's questions become forms for the client's user.  A form's fields can have only plain types
(https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation, read 2026-11-27), so values of other
types, and changed arguments for a call, are entered as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import secrets
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote

import anyio
import mcp_types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json

from fsm_agent._internal.masking import mask_keys, masked_arguments
from fsm_agent._internal.text import plain
from fsm_agent.agents.agent import Agent
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Cancelled, Denied, Outcome
from fsm_agent.call.process import SEPARATOR
from fsm_agent.call.question_forms import (
    Field,
    FormError,
    QuestionForm,
    about_of,
    masked_arguments_of,
    outcome_of,
    question_form,
    question_text,
    read_fields,
)
from fsm_agent.call.record import State
from fsm_agent.call.result import CallFailed, CallResult, CallSuspended
from fsm_agent.errors import FsmAgentError
from fsm_agent.functions.context import deps_for
from fsm_agent.functions.function import Function
from fsm_agent.mcp.server import own_stdin, task_of, why_not_served
from fsm_agent.messages.event_json import parsed
from fsm_agent.messages.events import Event, FunctionProgress, Question, Stepped, unwrapped
from fsm_agent.messages.message import Attachment, Document, Image
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.store.errors import AlreadyAnswered, NotAsked, RunBusy, RunUnknown, StoreError

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
MAX_WAITING = 100  # unsent reports of one call; a client that reads too slowly misses the oldest
MAX_CHARS = 1000  # in one report


class Progress:
    """Receives a call's events and reports progress to the client."""

    def __init__(self, report: Report, tool: str) -> None:
        self._report = report
        self._tool = tool
        self._count = 0
        self._waiting = asyncio.Queue[tuple[int, str] | None](MAX_WAITING + 1)  # and the end

    def hear(self, event: Event) -> None:
        """Queue a report to the client about an event in the call."""
        if text := self._text(event):
            self._count += 1
            self._put((self._count, text[:MAX_CHARS]))

    def end(self) -> None:
        """Make `send` return once all reports are sent."""
        self._put(None)

    def _put(self, report: tuple[int, str] | None) -> None:
        if self._waiting.full():
            self._waiting.get_nowait()
        self._waiting.put_nowait(report)

    async def send(self) -> None:
        """Send reports until `end` is called, or until sending fails because the connection and the call have ended."""
        with suppress(Exception):
            while (report := await self._waiting.get()) is not None:
                number, text = report
                await self._report(number, None, text)

    def _text(self, event: Event) -> str:
        where, event = unwrapped(event)
        if isinstance(event, FunctionProgress):
            return plain(event.data if isinstance(event.data, str) else _json(event.data))
        if where and isinstance(event, Stepped):  # only steps of nested calls are informative
            return plain(f"{where.partition(SEPARATOR)[2] or self._tool}: {event.to}")
        return ""


def _json(data: Any) -> str:
    return to_json(data, fallback=str).decode()


LOG = logging.getLogger("fsm_agent.mcp")
CANCEL_TIMEOUT_S = 5.0  # for a call to end by itself after it is cancelled
MOST_WAITED = 1000  # calls kept in memory that have waited
MAX_ARGUMENT_CHARS = 1_000_000
CANCELLED = "cancelled by the client"
ANSWERED = "this question was answered before, or its call has ended"
GOES_ON = "the call continues: another client drives it"
NO_FORMS = "this call needs a person's answer, but the client cannot ask its user: it does not support elicitation"
WAITS = "the call has not ended: it waits until a later time"

Result = types.CallToolResult | types.InputRequiredResult


class _Refused(Exception):
    """A request that ends without a function result, but with an error message to the client."""


def current_user() -> str:
    """Return the subject of the request's token, or its client id if it has no subject, or "" if there is no login.

    The name is for ``deps`` functions and the journal.  It does not decide who may answer, because the sealed state
    includes the client and the issuer.
    """
    token = get_access_token()
    return "" if token is None else token.subject or token.client_id


class ToolCall:
    """A client's request to call a tool, which begins or continues a run in the agent's store.

    A call that waits for an answer has a *state*, which the client sends back with the answer.  Because the state is
    the name of the run, only the first answer counts.
    """

    def __init__(
        self, tools: Tools, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> None:
        self._tools, self._agent, self._deps = tools, tools.agent, tools.deps
        self._context, self._params = context, params
        self._name = params.request_state or f"{tools.agent.name}-{secrets.token_hex(16)}"
        self._by = current_user() or "mcp"  # the name to show for the person or client that answers
        self._progress = Progress(context.session.report_progress, params.name)

    async def result(self) -> Result:
        """Run the call, and return its result or the question that it waits for."""
        sending = asyncio.create_task(self._progress.send())
        try:
            result = await self._driven()
            self._progress.end()
            await asyncio.wait({sending})  # so that the result comes last
        except _Refused as refusal:
            return error_result(str(refusal))
        except Exception as error:  # clients must not see its text
            LOG.error("the tool %r failed", self._params.name, exc_info=error)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error; its log has the reason") from None
        finally:
            sending.cancel()
            self._tools.note_end(self._name)  # ignored if it has waited
        return result

    async def _driven(self) -> Result:
        call = await self._first()
        while call.effects:
            questions = _questions(call)
            if not questions:
                raise _Refused(WAITS)
            if not _can_ask(self._context):
                await _shield(self._cancel())
                raise _Refused(NO_FORMS)
            if self._context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                forms: Any = {question.key: elicitation(question) for question in questions}
                self._tools.note_wait(self._name)
                return types.InputRequiredResult(input_requests=forms, request_state=self._name)
            call = await self._answered(await self._elicited(questions))
        return result_of(call)

    async def _first(self) -> AgentCall[Any]:
        """Begin a new call, or continue the one whose state the client has sent."""
        if self._params.request_state is None:
            task = task_of(self._params.name, self._params.arguments or {})
            if len(task) > MAX_ARGUMENT_CHARS:
                raise _Refused(f"the arguments: expected at most {MAX_ARGUMENT_CHARS} characters of JSON, got more")
            return await self._drive(self._begun(task))
        definition = self._agent._definition({"deps": self._deps})
        try:
            call: AgentCall[Any] = await asyncio.to_thread(self._agent.runs.all.look_at, self._name, definition)
        except RunUnknown:
            raise _Refused(ANSWERED) from None
        responses, questions = self._params.input_responses, _questions(call)
        if not responses and (questions or not call.effects):
            return call
        answers = _answers(questions, responses or {})
        if responses and not answers:
            raise _Refused(ANSWERED)
        return await self._answered(answers)

    async def _begun(self, task: str) -> CallResult[Any]:
        prepare = partial(self._agent.prepare, task, deps=self._deps, by=current_user(), run_id=self._name)
        return await self._agent.arun(await asyncio.to_thread(prepare), self._progress.hear)

    async def _answered(self, answers: Mapping[str, Outcome]) -> AgentCall[Any]:
        hear = self._progress.hear
        try:
            return await self._drive(
                self._agent.runs.aresume(self._name, answers or None, by=self._by, deps=self._deps, sink=hear)
            )
        except (AlreadyAnswered, NotAsked, RunUnknown):
            raise _Refused(ANSWERED) from None
        except RunBusy:
            raise _Refused(GOES_ON) from None

    async def _drive(self, work: Awaitable[CallResult[Any]]) -> AgentCall[Any]:
        """Run a call until it has ended or is suspended.  If this task is cancelled, end the call before that.

        The call runs in its own task, because anyio repeats a cancellation at each await, which would disturb the
        release of the run.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            await _shield(self._end(task))
            raise
        try:
            return task.result().call
        except (CallFailed, CallSuspended) as error:
            return error.call

    async def _end(self, task: asyncio.Future[Any]) -> None:
        await self._cancel()
        await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_S)
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_S)
        if task.done() and not task.cancelled():
            task.exception()  # otherwise asyncio logs that it was never retrieved
        await self._cancel()

    async def _cancel(self) -> None:
        """Cancel the call, if it has not ended."""
        with suppress(StoreError):  # the call has not begun, or has ended
            await asyncio.to_thread(partial(self._agent.runs.all.cancel, self._name, CANCELLED, by=self._by))
            with suppress(FsmAgentError):  # it ends as cancelled, here or in its current driver
                await self._agent.runs.aresume(self._name, deps=self._deps)

    async def _elicited(self, questions: tuple[Question, ...]) -> dict[str, Outcome]:
        """Ask the client's user while the request stays open, as protocol versions before 2026-07-28 do."""
        answers: dict[str, Outcome] = {}
        session = self._context.session
        try:
            for question in questions:
                params: Any = elicitation(question).params
                filled = await session.elicit_form(
                    params.message, params.requested_schema, related_request_id=self._context.request_id
                )
                answers |= _answers((question,), {question.key: filled})
        except BaseException as error:
            await _shield(self._cancel())
            if isinstance(error, MCPError):
                raise _Refused(f"the client has not answered: {error.error.message[:200]}") from None
            raise
        return answers


async def _shield(work: Awaitable[None]) -> None:
    """Do all of the work, even if the current task is cancelled."""
    with anyio.CancelScope(shield=True):
        await asyncio.ensure_future(work)


def _can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client can show forms to its user."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.session.can_send_request


def _questions(call: AgentCall[Any]) -> tuple[Question, ...]:
    return tuple([effect.question for effect in call.effects if effect.question is not None])


def _answers(questions: tuple[Question, ...], responses: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return outcomes for the open questions that have a response, by key."""
    answers: dict[str, Outcome] = {}
    for question in questions:
        response = responses.get(question.key)
        if response is None:
            continue
        if not isinstance(response, types.ElicitResult):
            raise _Refused(f"the response to {question.key!r}: expected a form that was filled in, got another")
        try:
            key, outcome = answer(question, response)
        except FormError as error:
            raise _Refused(f"the answer to {question.key!r} does not fit: {error.problem}") from None
        answers[key] = outcome
    return {"": answers[""]} if "" in answers else answers


def result_of(call: AgentCall[Any]) -> types.CallToolResult:
    """Return the result of a call that has ended, as a model would see it."""
    record = call.record
    if record.state is State.FAILED:
        ending = record.ending
        assert ending is not None, "it has failed"
        return error_result(f"{ending.reason}: {ending.detail}")
    done = record.function_calls[0]
    if done.error is not None:
        return error_result(done.error)
    text = [types.TextContent(text=done.result or "")]
    return types.CallToolResult(content=[*text, *[_block(item) for item in done.attachments]])


def error_result(text: str) -> types.CallToolResult:
    """Return the result of a tool that has failed."""
    return types.CallToolResult(content=[types.TextContent(text=mask_keys(text))], is_error=True)


def _block(item: Attachment) -> types.ContentBlock:
    name = (item.name if isinstance(item, Document) else None) or "attachment"
    if item.data is None:
        return types.ResourceLink(name=name, uri=str(item.url), mime_type=item.media_type)
    data = base64.b64encode(item.data).decode()
    if isinstance(item, Image):
        return types.ImageContent(data=data, mime_type=str(item.media_type))
    uri = f"attachment:///{quote(name)}"
    resource: types.TextResourceContents | types.BlobResourceContents = (
        types.BlobResourceContents(uri=uri, mime_type=item.media_type, blob=data)
        if item.text is None
        else types.TextResourceContents(uri=uri, mime_type=item.media_type, text=item.text)
    )
    return types.EmbeddedResource(resource=resource)


_MAX_NAME_CHARS = 64  # of an unknown tool's name in an error


def official_server(
    agent: Agent[Any, Any], deps: Any, key: bytes, valid_s: float, about: Mapping[str, Any], *, keeps: bool
) -> Server[Any]:
    """Return an official server whose tools are an agent's functions.

    Args:
        agent: The agent.
        deps: The ``deps`` in the `Context` of functions; see `serve`.
        key: The key that seals the states that clients keep.
        valid_s: How long a state is valid, in seconds.
        about: What the server says about itself.
        keeps: See `Tools`.
    """
    tools = Tools(agent, deps, keeps=keeps)
    server: Server[Any] = Server(agent.name, on_list_tools=tools.list, on_call_tool=tools.call, **about)
    security = RequestStateSecurity(keys=[key], ttl=valid_s)
    server.middleware.append(RequestStateBoundary(security, default_audience=agent.name))
    return server


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client over standard input and output until it closes them."""
    with own_stdin() as lines:
        async with stdio_server(stdin=anyio.wrap_file(lines)) as (read, write):
            try:
                await server.run(read, write, server.create_initialization_options())
            finally:
                sys.stdout.flush()  # to stderr, where it goes until the block ends, and not to the client


class Tools:
    """A server's request handlers.

    Args:
        agent: The agent whose functions are the tools.
        deps: The ``deps`` in the `Context` of functions; see `serve`.
        keeps: Whether the agent's store keeps runs that have ended.  Otherwise, they are deleted.
    """

    def __init__(self, agent: Agent[Any, Any], deps: Any, *, keeps: bool) -> None:
        self.agent, self.deps = agent, deps
        self._keeps = keeps
        self._waited = deque[str]()  # the runs that have waited for an answer and are kept in memory
        self._is_fixed = all(isinstance(item, Function) for item in agent.functions)

    async def list(self, context: Any, params: Any) -> types.ListToolsResult:
        """Return the tools that can be called now."""
        offered = await self._offered()
        return types.ListToolsResult(tools=[_tool(f) for f in offered.values() if not why_not_served(f)])

    async def call(self, context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams) -> Result:
        """Return a tool's result, or the question for the client's user."""
        function = (await self._offered()).get(params.name)
        if function is None:
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {plain(params.name[:_MAX_NAME_CHARS])!r}")
        if problem := why_not_served(function):
            return error_result(problem)
        return await ToolCall(self, context, params).result()

    async def _offered(self) -> Mapping[str, Function]:
        """Return the functions for a new call, by name."""
        if self._is_fixed:
            return self.agent.prompt.by_name
        return (await asyncio.to_thread(self._resolved, current_user())).by_name

    def _resolved(self, user: str) -> Prompt:
        deps = deps_for(self.deps, self.agent.name, {}, user)
        return self.agent._resolve_prompt(None, deps)

    def note_wait(self, name: str) -> None:
        """Record that a call waits for an answer.  Memory holds at most `MOST_WAITED` of these calls."""
        if self._keeps or name in self._waited:
            return
        self._waited.append(name)
        if len(self._waited) > MOST_WAITED:
            self._delete(self._waited.popleft())

    def note_end(self, name: str) -> None:
        """Record that the client has received a call's result."""
        if not self._keeps and name not in self._waited:
            self._delete(name)

    def _delete(self, name: str) -> None:
        with suppress(StoreError):  # the call has not begun, or is running
            self.agent.runs.all.store.delete(name)


def _tool(function: Function) -> types.Tool:
    hints = types.ToolAnnotations(destructive_hint=True, idempotent_hint=False) if function.once else None
    return types.Tool(
        name=function.name,
        description=function.description,
        input_schema=dict(function.parameters),
        annotations=hints,
    )


MAX_WORDS = 2000  # characters of a question
_TEXT = {"type": "string"}
_FATES = {  # the user's choices for a function that may have run, by the kind of the outcome
    "returned": "It was done",
    "function_failed": "It failed",
    "run_again": "It did nothing: run it again",
    "cancelled": "Cancel the call",
}
_APPROVE = {"type": "boolean", "title": "Allow it"}
_REASON = {**_TEXT, "title": "Why not", "description": "The model is told."}
_BOUNDS = ("title", "description", "minLength", "maxLength", "minimum", "maximum")


def elicitation(question: Question) -> types.ElicitRequest:
    """Return the form that the client shows to its user."""
    form = question_form(question)
    if form.is_arguments:
        properties, needed = {"approve": _APPROVE, "reason": _REASON, **_arguments_field(question)}, ["approve"]
    elif "run_again" in form.answers:
        fates = {**_TEXT, "title": "What became of it", "enum": [_FATES[kind] for kind in form.answers]}
        properties, needed = {"outcome": fates, "text": {**_TEXT, "title": "Its result, or its error"}}, ["outcome"]
    else:
        fields = _fields(form)
        properties = {name: _property(field) for name, field in fields.items()}
        needed = [name for name, field in fields.items() if field.is_needed or not field.key]
        if len(form.choices) > 1:
            properties = {"type": {**_TEXT, "enum": [choice.name for choice in form.choices]}, **properties}
            needed = ["type", *needed]
    schema = {"type": "object", "properties": properties, "required": needed}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=_words(question), requested_schema=schema))


def answer(question: Question, filled: types.ElicitResult) -> tuple[str, Outcome]:
    """Return `(key, outcome)` for a completed form.  A call is approved only if the form says so explicitly.

    Raises:
        FormError: If a field is missing, or its value does not fit the question.
    """
    content = {name: value for name, value in (filled.content or {}).items() if value is not None}
    is_filled, form = filled.action == "accept", question_form(question)
    if form.is_arguments:
        if is_filled and content.get("approve") is True:
            return question.key, outcome_of(question, "approved", _given_arguments(content))
        default = "" if is_filled else "the user has declined"
        return question.key, Denied(_text(content, "reason") or default)
    if not is_filled:
        return "", Cancelled(reason="the user has declined to answer")
    if "run_again" in form.answers:
        return question.key, _fate(question, form, content)
    fields = _fields(form)
    if missing := [name for name, field in fields.items() if not field.key and name not in content]:
        raise FormError({missing[0]: f"{missing[0]!r} of the form: expected a value, got none"})
    typed = {field.name: _typed(field, content[name]) for name, field in fields.items() if name in content}
    value = read_fields([*fields.values()], typed, may_be_empty=True)
    return question.key, outcome_of(question, "returned", value, type=_text(content, "type"))


def _words(question: Question) -> str:
    about = about_of(question)
    if "function" in about:
        call = f"{about['function']}({masked_arguments(str(about.get('arguments', '')))})"
        text = {
            "approval": f"Allow {call}?",
            "doubt": f"{call} had begun, and it must not run twice. What became of it?",
        }.get(question.kind, f"What is the result of {call}?")
    else:
        text = question_text(question) or "An answer is needed."
    text = plain(text)
    if len(text) <= MAX_WORDS:
        return text
    note = f"… (cut off: the whole has {len(text):,} characters)"  # people must know that they see only a part
    return f"{text[: MAX_WORDS - len(note)]}{note}"


def _arguments_field(question: Question) -> dict[str, Any]:
    """Return the field for changing the arguments, or {} if the arguments are empty or too long."""
    shown = masked_arguments_of(question)
    if shown in ("", "{}") or len(shown) > MAX_WORDS:
        return {}
    about = "As JSON; change it to allow the call with other arguments."
    return {"arguments": {**_TEXT, "title": "Its arguments", "description": about, "default": shown}}


def _given_arguments(content: Mapping[str, Any]) -> Any:
    text = _text(content, "arguments")
    return parsed(text) if text.strip() else None


def _fields(form: QuestionForm) -> dict[str, Field]:
    """Return the fields for an answer, by name.  An answer with several possible types has a single field, for JSON."""
    if len(form.choices) > 1:
        return {"answer": Field("v", "", "its value", "json", "", is_needed=True)}
    whole = "result" if form.kind == "result" else "answer"
    return {field.key or whole: field for field in form.choices[0].fields}


def _property(field: Field) -> dict[str, Any]:
    if field.kind == "choice":
        return {**_kept(field, "title", "description"), **_TEXT, "enum": [words for _, words in field.choices]}
    if field.kind == "json":
        schema = json.dumps(field.schema) if field.schema else "any value"
        return {**_TEXT, "description": f"{field.hint} (as JSON: {schema})"[:MAX_WORDS]}
    return {**_kept(field, *_BOUNDS), "type": field.kind}


def _kept(field: Field, *names: str) -> dict[str, Any]:
    return {name: field.schema[name] for name in names if name in field.schema}


def _typed(field: Field, value: Any) -> str:
    """Return a value as text for a field."""
    if field.kind == "choice":
        return next((text for text, words in field.choices if words == value), json.dumps(value))
    return value if isinstance(value, str) else json.dumps(value)


def _fate(question: Question, form: QuestionForm, content: Mapping[str, Any]) -> Outcome:
    said, text = content.get("outcome"), _text(content, "text")
    kind = next((kind for kind in form.answers if _FATES[kind] == said), "")
    if not kind:
        raise FormError({"outcome": f"outcome: expected {' or '.join([_FATES[one] for one in form.answers])}"})
    value = read_fields(form.choices[0].fields, {"v": text}, may_be_empty=True) if kind == "returned" else None
    return outcome_of(question, kind, "" if value is None else value, reason=text)


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""
