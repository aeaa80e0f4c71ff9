"""One call of a tool: an agent call whose model asks for just that function, from its request to its result."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import mcp_types as types
from mcp.server.request_state import authenticated_principal
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fsm_agent._internal.redaction import mask_keys
from fsm_agent.call.call import AgentCall
from fsm_agent.call.outcomes import Outcome
from fsm_agent.call.questions import FormError
from fsm_agent.call.record import State
from fsm_agent.mcp.serving.asked import task_of
from fsm_agent.mcp.serving.calls import Calls, cancelled_at_rest, undisturbed
from fsm_agent.mcp.serving.forms import answer, elicitation
from fsm_agent.mcp.serving.needs import Needs
from fsm_agent.mcp.serving.progress import Progress
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import Attachment, Document, Image
from fsm_agent.store.errors import AlreadyAnswered, NotAsked, RunBusy, RunUnknown

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

LOG = logging.getLogger("fsm_agent.mcp")
MAX_ARGUMENT_CHARS = 1_000_000
ANSWERED = "this question was answered before, or its call has ended"
GOES_ON = "the call continues: another client drives it"
NO_FORMS = "this call needs an answer of a person, but the client cannot ask its user: it has no elicitation"
NO_STORE = "this call needs an answer of a person, which must be taken once, so the server needs a store"
TOO_LARGE = "this call needs an answer of a person, but is too large to be carried, so the server needs a store"
WAITS = "the call has not ended: it waits until a later time"

Result = types.CallToolResult | types.InputRequiredResult


class _Refused(Exception):
    """The client is told why its request ends without a result of the function."""


class Asks(NamedTuple):
    """The requests of one client for one tool."""

    calls: Calls
    needs: Needs
    is_stored: bool
    context: ServerRequestContext[Any, Any]
    params: types.CallToolRequestParams

    @property
    def user(self) -> str:
        """Who asks, as the server's login knows them; empty: it has none."""
        return authenticated_principal(self.context) or ""

    @property
    def by(self) -> str:
        """Who answers, for people."""
        return self.user or "mcp"

    async def result(self) -> Result:
        """Drive the call, and return its result, or what it waits for.

        Raises:
            MCPError: It failed by a fault of the server, which is logged.
        """
        progress = Progress(self.context.session.report_progress, self.params.name)
        sending = asyncio.create_task(progress.send())
        try:
            result = await self._driven(progress)
            progress.end()
            await asyncio.wait({sending})  # the result comes last
        except _Refused as refusal:
            return error_result(str(refusal))
        except Exception as error:  # its text may hold what no client may see
            LOG.error("the tool %r failed", self.params.name, exc_info=error)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error; its log has the reason") from None
        finally:
            sending.cancel()
        return result

    async def _driven(self, progress: Progress) -> Result:
        name = self.params.request_state or self.calls.new_name()
        call = await self._first(name, progress)
        while call.effects:
            questions = _questions(call)
            state = await self._state(name, call, questions)
            if self.context.protocol_version in MODERN_PROTOCOL_VERSIONS:
                forms: Any = {question.key: elicitation(question) for question in questions}
                return types.InputRequiredResult(input_requests=forms, request_state=state)
            answers = await self._elicited(name, questions)
            call = await self._answered(call, name, state, answers, progress)
        return result_of(call)

    async def _first(self, name: str, progress: Progress) -> AgentCall[Any]:
        """Begin the call, or continue one that has waited."""
        state = self.params.request_state
        if state is None:
            task = task_of(self.params.name, self.params.arguments or {})
            if len(task) > MAX_ARGUMENT_CHARS:
                raise _Refused(f"the arguments: expected at most {MAX_ARGUMENT_CHARS} characters of JSON, got more")
            return await undisturbed(self.calls.begin(name, task, self.user, progress), self.calls, name, self.by)
        try:
            call = await self.calls.at(state)
        except RunUnknown:
            raise _Refused(ANSWERED) from None
        responses, questions = self.params.input_responses, _questions(call)
        if not responses and (questions or not call.effects):
            return call
        answers = _answers(questions, responses or {})
        if responses and not answers:
            raise _Refused(ANSWERED)
        return await self._answered(call, name, state, answers, progress)

    async def _answered(
        self, call: AgentCall[Any], name: str, state: str, answers: Mapping[str, Outcome], progress: Progress
    ) -> AgentCall[Any]:
        name = name if self.is_stored else ""
        try:
            work = self.calls.go_on(call, state, answers, self.by, progress)
            return await undisturbed(work, self.calls, name, self.by)
        except (AlreadyAnswered, NotAsked, RunUnknown):
            raise _Refused(ANSWERED) from None
        except RunBusy:
            raise _Refused(GOES_ON) from None

    async def _state(self, name: str, call: AgentCall[Any], questions: tuple[Question, ...]) -> str:
        """Return the state of a call that waits; one that this client cannot answer is cancelled."""
        why = ""
        if not questions:
            why = WAITS
        elif not _can_ask(self.context):
            why = NO_FORMS
        elif not self.is_stored and (self.needs.is_open or any(q.kind in ("approval", "doubt") for q in questions)):
            why = NO_STORE
        state = "" if why else self.calls.state_of(name, call)
        if not state:
            if questions:
                await self._give_up(name)
            raise _Refused(why or TOO_LARGE)
        return state

    async def _elicited(self, name: str, questions: tuple[Question, ...]) -> dict[str, Outcome]:
        """Ask the client's user, while the request stays open, as before 2026-07-28."""
        answers: dict[str, Outcome] = {}
        session = self.context.session
        try:
            for question in questions:
                params: Any = elicitation(question).params
                filled = await session.elicit_form(
                    params.message, params.requested_schema, related_request_id=self.context.request_id
                )
                answers |= _answers((question,), {question.key: filled})
        except BaseException as error:
            await self._give_up(name)
            if isinstance(error, MCPError):
                raise _Refused(f"the client has not answered: {error.error.message[:200]}") from None
            raise
        return answers

    async def _give_up(self, name: str) -> None:
        if self.is_stored:
            await cancelled_at_rest(self.calls, name, self.by)


def _can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Return whether the client has said that it shows forms to its user."""
    capabilities = context.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.session.can_send_request


def _questions(call: AgentCall[Any]) -> tuple[Question, ...]:
    return tuple([effect.question for effect in call.effects if effect.question is not None])


def _answers(questions: tuple[Question, ...], responses: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return outcomes by key for the questions that are open and have a response.

    Raises:
        _Refused: A response is none, or does not fit its question.
    """
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
    text = item.text
    if text is not None:
        return types.EmbeddedResource(
            resource=types.TextResourceContents(uri=uri, mime_type=item.media_type, text=text)
        )
    return types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, mime_type=item.media_type, blob=data))
