"""Reads and checks clients' requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fsm_agent.call.outcomes import Approved, Denied, FunctionFailed, Modified, Outcome, Returned
from fsm_agent.call.process import INBOX, prefix_of
from fsm_agent.call.question_forms import outcome_of
from fsm_agent.errors import UsageError
from fsm_agent.messages.events import Question
from fsm_agent.messages.message import Image, Message

MAX_BODY = 5_000_000  # bytes of a request
MAX_NAME = 200  # characters of the name of a run or a conversation
USERS = ("approval", "answer", "result")  # kinds of questions for users; the others are for operators
_CLAIMS = ("by", "user", "user_id", "userId")  # refused, because only the login says who the user is


class BadRequest(UsageError):
    """A client's request is invalid.  ``code`` is an error code that programs can check.

    Examples:
        >>> try:
        ...     AgUi.read({"threadId": "t1", "runId": "r1", "messages": []})
        ... except BadRequest as error:
        ...     print(error.code)
        no_message
    """

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class ClientRequest(NamedTuple):
    """A client's request, which contains either a new message or answers.

    Examples:
        >>> said = {"role": "user", "id": "m1", "content": "Hello"}
        >>> asked = AgUi.read({"threadId": "t1", "runId": "r1", "messages": [said]})
        >>> asked.conversation, asked.message.text
        ('t1', 'Hello')
    """

    conversation: str
    run: str  # the client's name for the run, or ""
    message: Message | None  # the new message; None if the client answers questions
    answers: Mapping[str, Any]  # outcomes of approvals and values for other questions, by key
    is_continued: bool = False  # the client continues the message that asked
    payloads: Mapping[str, Any] = {}  # raw answers by key: an object with `approved` may also answer a flow
    results: Mapping[str, Returned] = {}  # of functions that the client runs, by key, including known ones
    tools: tuple[str, ...] = ()  # names of the functions that the client runs
    is_again: bool = False  # the client wants another answer to its last message, for example after a failure


def read_json(body: bytes) -> Any:
    """Return the JSON data in a body.

    Raises:
        BadRequest: If the body is too large or is not JSON.

    Examples:
        >>> read_json(b'{"id": "c1"}')
        {'id': 'c1'}
    """
    if len(body) > MAX_BODY:
        raise BadRequest(f"the body: expected at most {MAX_BODY:,} bytes, got {len(body):,}", "too_large")
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body: expected JSON: {error}", "bad_json") from None


async def read_body(request: Any, most: int) -> bytes:
    """Return the body of a Starlette request.  Reading stops once the body exceeds ``most`` bytes."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            break
    return bytes(body)


def convert_body(body: Any, kind: Any) -> Any:
    """Convert a body to an instance of ``kind``, and refuse a body that says who the user is."""
    if isinstance(body, dict) and (claimed := [name for name in _CLAIMS if name in body]):
        raise BadRequest(
            f"the body: expected no {claimed[0]}, since only the login of the service names the user", "claimed_user"
        )
    try:
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadRequest(f"the body: {error}", "bad_body") from None


def check_name(what: str, name: str) -> str:
    """Check a name from a client and return it."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise BadRequest(f"{what}: expected 1 to {MAX_NAME} printable characters, got {name!r:.60}", "bad_name")
    return name


def read_image(url: str) -> Image:
    """Return the image in a data URL, without reading any file or fetching any URL."""
    if not url.startswith("data:"):
        raise BadRequest("an image: expected it in the body, as data:image/png;base64,…, got a URL", "bad_part")
    try:
        return Image.of(url)
    except UsageError:
        raise BadRequest("an image: expected a PNG, JPEG, GIF or WebP image, got other data", "bad_part") from None


def user_message(parts: Sequence[str | Image]) -> Message:
    """Return a user's message.  An empty message is refused, like an empty task in Python."""
    if not any(isinstance(part, Image) or part.strip() for part in parts):
        raise BadRequest("messages: expected text or an image in the last one, got an empty message", "no_message")
    return Message.of("user", *parts)


def read_arguments(arguments: Any) -> str | None:
    """Return edited arguments as JSON, or None if there are none."""
    if arguments is None:
        return None
    if not isinstance(arguments, dict):
        raise BadRequest("the edited arguments: expected an object, got another value", "bad_answer")
    return json.dumps(arguments)


def approval_outcome(is_approved: bool, reason: Any = None, arguments: str | None = None) -> Outcome:
    """Return the outcome of an approval."""
    if not is_approved:
        return Denied(reason if isinstance(reason, str) else "")
    return Approved() if arguments is None else Modified(arguments)


def answer_questions(questions: tuple[Question, ...], asked: ClientRequest) -> dict[str, Any]:
    """Return a client's answers in the form that the questions require.

    Masked arguments get their original values back.  A value that answers a flow's question becomes JSON text, because
    only the flow's state knows its type.

    Raises:
        BadRequest: If a question may be answered only by operators, such as whether a ``once`` function took effect, if
            an approval is answered with something else, or a flow's question without a value, or if the client sends
            only results for functions that do not wait for one.
        FormError: If edited arguments do not fit the function.
    """
    by_key = {question.key: question for question in questions}
    given = dict[str, Any]()
    for key, answer in asked.answers.items():
        question, payload = by_key.get(key), asked.payloads.get(key)
        if question is not None:
            given[key] = _answer_to(question, answer, payload)
        else:  # the store refuses an answer without an open question
            given[key] = answer if isinstance(answer, Outcome) or prefix_of(key) == INBOX else _result(answer)
    waiting = [question.key for question in questions if question.kind == "result"]
    given |= {key: asked.results[key] for key in waiting if key in asked.results}
    if not given:
        raise BadRequest("messages: expected the result of a function that waits for one, got another", "bad_answer")
    return given


def _answer_to(question: Question, answer: Any, payload: Any) -> Any:
    if question.kind == "approval":
        if isinstance(answer, Modified):
            return outcome_of(question, "modified", json.loads(answer.arguments_json))
        if not isinstance(answer, Outcome):
            problem = f"the answer to {question.key!r}: expected approved to be true or false, got another answer"
            raise BadRequest(problem, "bad_answer")
        return answer
    if question.kind not in USERS:
        problem = (
            f"the question {question.key!r} ({question.kind}) is for operators; answer it with `fsm-agent runs answer`"
        )
        raise BadRequest(problem, "for_operators")
    found = answer if payload is None else payload
    if question.kind == "result":
        return _result(found)
    if isinstance(found, Outcome):  # of an approval, or the client has closed the form
        raise BadRequest(f"the answer to {question.key!r}: expected a value, got none", "bad_answer")
    return Returned(text=json.dumps(found))


def _result(given: Any) -> Outcome:
    """Return the result that a client provides for a function without a callable."""
    if isinstance(given, Outcome):
        return FunctionFailed(text=given.reason if isinstance(given, Denied) else "no result was given")
    return Returned(text=given if isinstance(given, str) else json.dumps(given))
